"""The dialogs over the screen: a question, and the help."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

HELP = """\
dibs top                                   q or Ctrl-C quits

 j k, arrows   choose a job        1   jobs
 g G           first, last job     2   timeline
 l, Enter      its log, follows    3   everyone on the machine
 c             cancel it           + - more or less time
 r             retry it            /   search: words, or a
 h             hold or release it      selector such as failed,
 u             move it up              name:vit*, since:24h
 e             edit it             Esc close, end the search
 n             new job             ?   this help

The mouse chooses a job, a key at the bottom, a dialog's button.
Reasons, times and logs are live; nothing is asked while idle."""


class Question(ModalScreen[bool]):
    """A question with yes and no; only y or the button says yes."""

    BINDINGS = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(self._text))
            with Horizontal():
                yield Button("y  Yes", id="yes", compact=True)
                yield Button("n  No", id="no", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, is_yes: bool) -> None:
        """Close the dialog with an answer."""
        self.dismiss(is_yes)


class Help(ModalScreen[None]):
    """The keys; any of a few closes it."""

    BINDINGS = [Binding("escape,q,question_mark,enter,space", "close", "close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog help"):
            yield Static(Content(HELP))

    def on_click(self) -> None:
        self.dismiss()

    def action_close(self) -> None:
        """Close the help."""
        self.dismiss()

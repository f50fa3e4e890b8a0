"""Find the quoting context of a value in a shell command, and quote the value for it.

Pure.
"""

from __future__ import annotations

import re
from enum import Enum

from dibs.errors import UserError

#: Text that needs no quotes in a shell.
SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
#: A variable whose name would absorb the text that follows.
OPEN_VARIABLE = re.compile(r"\$\w+$")


class Place(Enum):
    """The quoting context of a value."""

    WORD = "a word of its own, without a shell"
    BARE = "outside quotes"
    SINGLE = "'...'"
    DOUBLE = '"..."'
    ANSI = "$'...'"
    COMMENT = "# ..."
    BACKTICK = "`...`"
    BRACKET = "$(...)"


#: How to close quotes, and how to reopen them.
OUT_AND_IN = {Place.SINGLE: ("'", "'"), Place.DOUBLE: ('"', '"'), Place.ANSI: ("'", "$'")}
LIKE_BARE = (Place.BARE, Place.BRACKET, Place.BACKTICK)


class Shell:
    """Tracks a command as a shell parses it, as far as needed to know which quotes are open."""

    def __init__(self) -> None:
        self._open = [Place.BARE]
        self._before = ""
        self.is_escaped = False

    def place(self) -> tuple[Place, bool]:
        """Return the context of a value here, and whether the text before would merge with an unquoted value."""
        place = self._open[-1]
        is_tight = bool(OPEN_VARIABLE.search(self._before))
        # A value never starts a comment and is never part of a variable name.
        self._before = "x"
        return (Place.BARE if place is Place.BRACKET else place), is_tight

    def read(self, text: str) -> None:
        """Parse the next part of the command."""
        for char in text:
            self._step(char)
            self._before = (self._before + char)[-80:]

    def _step(self, char: str) -> None:
        place = self._open[-1]
        if self.is_escaped:
            self.is_escaped = False
        elif place in (Place.SINGLE, Place.COMMENT):
            if char == ("'" if place is Place.SINGLE else "\n"):
                self._open.pop()
        elif char == "\\":
            self.is_escaped = True
        elif place is Place.ANSI:
            if char == "'":
                self._open.pop()
        elif char in '"`' or (char == ")" and place is Place.BRACKET):
            self._turn(char, place)
        elif char == "(" and (place in LIKE_BARE or self._before.endswith("$")):
            self._open.append(Place.BRACKET)
        elif place in LIKE_BARE:
            if char == "'":
                self._open.append(Place.ANSI if self._before.endswith("$") else Place.SINGLE)
            elif char == "#" and (not self._before or self._before[-1] in " \t\n;&|("):
                self._open.append(Place.COMMENT)

    def _turn(self, char: str, place: Place) -> None:
        closes = {'"': Place.DOUBLE, "`": Place.BACKTICK, ")": Place.BRACKET}[char]
        if place is closes:
            self._open.pop()
        else:
            self._open.append(closes)


def refuse_nul(text: str) -> None:
    """Refuse NUL, which no command can contain."""
    if "\0" in text:
        raise UserError(f"expected a value without NUL characters, got {text!r}.")


def quoted(text: str, place: Place, is_tight: bool = False) -> str:
    """Quote a text so that a shell in this context reads it literally."""
    refuse_nul(text)
    if place is Place.COMMENT:
        return text.replace("\n", " ")
    if not is_tight and (SAFE.fullmatch(text) or (not text and place is not Place.BARE)):
        return text
    word = "'" + text.replace("'", "'\"'\"'") + "'"
    out, back = OUT_AND_IN.get(place, ("", ""))
    return f"{out}{word}{back}"

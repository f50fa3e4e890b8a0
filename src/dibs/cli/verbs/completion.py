"""`dibs completion`: print or install the script with which a shell completes verbs, options, jobs and GPUs.

The scripts in `cli/shells` ask dibs for the possible words. They come from the tables that parse a command line, and
from the daemon for ids and names. The usage lines are the grammar: lower-case words are literal, upper-case words are
looked up in VALUES. A running daemon is asked with a short timeout; none is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from dibs.cli import help_topics, screen
from dibs.cli import main as cli
from dibs.cli.verbs import help as pages
from dibs.client import connection
from dibs.errors import DibsError, UserError
from dibs.model import selectors
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import paths, settings

SUMMARY = "Print or install shell completion for bash, zsh or fish."
USAGE = ("[OPTIONS] bash|zsh|fish",)
INSTALL: Option[bool] = Option(("--install",), "Install it where the shell finds it.")
WORDS: Option[bool] = Option(("--words",), "Print completion candidates; used by the shell scripts.")
OPTIONS: tuple[Option[object], ...] = (INSTALL, WORDS)
EXAMPLES = (
    "dibs completion bash --install",
    'eval "$(dibs completion bash)"',
    "dibs completion fish | source",
    "dibs completion --words -- show 1",
)

#: Timeout of a request to the daemon, while the user waits after pressing Tab.
PATIENCE_S = 0.5

#: What to say after the installation for each shell.
AFTERWARDS = {
    "bash": "active in new shells, if the package bash-completion is installed.",
    "zsh": "put this into ~/.zshrc before compinit: fpath=({folder} $fpath)",
    "fish": "active in new shells.",
}


def main(args: Args) -> None:
    """Print a script, install it, or answer its request."""
    if args.has(WORDS):
        print_words(args.words)
        return
    if len(args.words) != 1 or args.words[0] not in AFTERWARDS:
        raise UserError(f"completion expected bash, zsh or fish, got {options.quoted(args.words)}.")
    shell = args.words[0]
    if not args.has(INSTALL):
        print(script(shell), end="")
        return
    path = target(shell, os.environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.", f"See `dibs completion {shell}`.") from None
    print(path)
    screen.say(AFTERWARDS[shell].format(folder=path.parent))


def script(shell: str) -> str:
    """Return the script for a shell.

    It asks dibs itself, so that it is never older than the verbs. It sends the words up to the cursor; the last may be
    empty. A line that begins with a tab names what the shell completes itself.
    """
    return (Path(cli.__file__).parent / "shells" / f"completion.{shell}").read_text()


def target(shell: str, environ: Mapping[str, str]) -> Path:
    """Return where a shell looks for completions that a user installed."""
    home = paths.user_home(environ)
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if shell == "bash":
        return Path(environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion") / "completions" / "dibs"
    return config / "fish/completions/dibs.fish" if shell == "fish" else data / "zsh/site-functions/_dibs"


def print_words(typed: Sequence[str]) -> None:
    """Print possible words with descriptions, one per line; a line that begins with a tab is for the shell."""
    found = complete(typed, _ask)
    if found.by_shell:
        begins = f":{found.begins}" if found.by_shell == "command" else ""
        print(f"\t{found.by_shell}{begins}")
        return
    for word, about in found.words.items():
        print(f"{screen.clean(word)}\t{screen.clean(about)}")


#: Possible words and their descriptions.
Words = dict[str, str]
#: Jobs and GPUs as the daemon lists them; empty if no daemon listens.
Known = Mapping[str, Sequence[Mapping[str, object]]]
Ask = Callable[[], Known]


def _ask() -> Known:
    """Ask a running daemon; hide errors, which would disturb a user who types."""
    try:
        queue = connection.connect(os.environ)
        if not queue.is_daemon_there(PATIENCE_S):
            return {}
        answer: Known = queue.get("/v1/words", patience_s=PATIENCE_S)
    except DibsError:
        return {}
    return answer


@dataclass(frozen=True)
class Next:
    """Possible continuations: our words, or something that the shell completes itself."""

    words: Words = field(default_factory=dict)
    #: "", "files", "folders", or "command".
    by_shell: str = ""
    #: Index of the first word of a user's command, if the shell completes that.
    begins: int = 0


def complete(typed: Sequence[str], ask: Ask) -> Next:
    """Return what could replace the last word of `typed`, the words after `dibs`."""
    words = list(typed) or [""]
    last, at = words[-1], 0
    while at < len(words) - 1 and words[at].startswith("-"):
        at += 2 if words[at] == "--color" else 1
    if at >= len(words) - 1:
        is_option = last.startswith("-")
        return _matching(_options((*options.COMMON, pages.VERSION)) if is_option else _verbs(), last)
    name = cli.ALIASES.get(words[at], words[at])
    return _after_verb(cli.load(name), words[at + 1 :], at + 1, ask) if name in cli.VERBS else Next()


def _after_verb(verb: cli.Verb, rest: list[str], begins: int, ask: Ask) -> Next:
    table = (*verb.OPTIONS, *options.COMMON)
    known = {spelling: option for option in table for spelling in (*option.names, *option.habits)}
    plain: list[str] = []
    last, at, is_over = rest[-1], 0, False
    while at < len(rest) - 1:
        word = rest[at]
        if is_over or not word.startswith("-") or word == "-":
            plain.append(word)
            if cli.takes_command(verb):
                return Next(by_shell="command", begins=begins + at)
        elif word == "--":
            is_over = True
        elif (option := known.get(word)) is not None and option.kind is not None and not option.is_bare:
            at += 1
            if at == len(rest) - 1:
                return _placeholder(option.metavar, last, ask)
        at += 1
    if last.startswith("-") and not is_over:
        spelling, equals, value = last.partition("=")
        if equals and (option := known.get(spelling)) is not None:
            found = _placeholder(option.metavar, value, ask)
            return Next({f"{spelling}={word}": about for word, about in found.words.items()}, found.by_shell)
        return _matching(_options(table), last)
    return _positional(verb, plain, last, begins + len(rest) - 1, ask)


def _positional(verb: cli.Verb, plain: list[str], typed: str, at: int, ask: Ask) -> Next:
    """Return what the usage lines have after the words `plain`, if they match those."""
    found, place = Next(), len(plain)
    for usage in verb.USAGE:
        forms = [form for form in usage.replace("[OPTIONS]", "").split() if not form.strip("[").startswith("-")]
        if not all(_agrees(form, word) for form, word in zip(forms, plain, strict=False)):
            continue
        form = forms[place] if place < len(forms) else forms[-1] if forms and "..." in forms[-1] else ""
        more = _placeholder(form.strip('[]."'), typed, ask)
        begins = at if more.by_shell == "command" else found.begins
        found = Next(found.words | more.words, found.by_shell or more.by_shell, begins)
    return found


def _agrees(form: str, word: str) -> bool:
    bare = form.strip("[].")
    return word in bare.split("|") if bare.islower() else True


def _placeholder(form: str, typed: str, ask: Ask) -> Next:
    if form in SHELL_KNOWS:
        return Next(by_shell=SHELL_KNOWS[form])
    if form in LISTS:
        # In a list with commas, only the last item is being typed.
        kept, comma, _ = typed.rpartition(",")
        left = {kept + comma + word: about for word, about in _gpus(ask).items() if word not in kept.split(",")}
        return _matching(left, typed)
    if form in VALUES:
        return _matching(VALUES[form](ask), typed)
    if form and form.replace("|", "").replace("-", "").isalpha() and form.islower():
        return _matching(dict.fromkeys(form.split("|"), ""), typed)
    return Next()


def _matching(words: Words, typed: str) -> Next:
    return Next({word: about for word, about in words.items() if word.startswith(typed)})


def _options(table: Sequence[Option[object]]) -> Words:
    return {option.names[-1]: option.help for option in table}


def _verbs() -> Words:
    return {name: cli.load(name).SUMMARY for name in cli.VERBS}


def _topics() -> Words:
    return {name: topic.summary for name, topic in help_topics.TOPICS.items() if name not in cli.VERBS}


def _jobs(ask: Ask) -> Words:
    found = list(reversed(ask().get("jobs", ())))
    fields: Words = {}
    for job in found:
        tags = (f"tag:{tag}" for tag in cast("list[str]", job["tags"]))
        for word in (f"name:{job['name']}", f"project:{job['project']}", *tags):
            fields.setdefault(word, f"job {job['id']}")
    return {
        **{str(job["id"]): f"{job['state']} {job['name']}" for job in found},
        "@": "the last job",
        "all": "every job",
        **dict.fromkeys((*selectors.STATE_WORDS, *selectors.GROUP_WORDS), "all jobs in this state"),
        # A name with blanks would need quotes, which differ between shells.
        **{word: about for word, about in fields.items() if not any(char.isspace() for char in word)},
    }


def _gpus(ask: Ask) -> Words:
    return {str(gpu["index"]): str(gpu["name"]) for gpu in ask().get("gpus", ())}


#: Placeholders in usage lines and after options, and the source of their words.
VALUES: dict[str, Callable[[Ask], Words]] = {
    **dict.fromkeys(("SELECTOR", "JOBS", "ID"), _jobs),
    "GPU": _gpus,
    "SETTING": lambda ask: {setting.name: setting.meaning for setting in settings.SETTINGS},
    "VERB|TOPIC": lambda ask: _verbs() | _topics(),
}
#: Lists of GPUs, whose placeholder is an example.
LISTS = ("0,2", "1,3")
SHELL_KNOWS = {"FILE": "files", "PATH": "files", "DIR": "folders", "COMMAND": "command"}

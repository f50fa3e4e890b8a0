"""Completion of a command line: from the tables that parse it, and from the daemon for ids and names.

The usage lines are the grammar: lower-case words are literal, upper-case words are looked up in VALUES. A running
daemon is asked with a short timeout; none is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dibs.cli import help_topics
from dibs.cli import main as cli
from dibs.cli.verbs import help as pages
from dibs.model import selectors
from dibs.submission import options
from dibs.submission.options import Option
from dibs.system import settings

#: Timeout of a request to the daemon, while the user waits after pressing Tab.
PATIENCE_S = 0.5


@dataclass(frozen=True)
class Word:
    """A possible word and its description."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Next:
    """Possible continuations: our words, or something that the shell completes itself."""

    words: tuple[Word, ...] = ()
    #: "", "files", "folders", or "command".
    by_shell: str = ""
    #: Index of the first word of a user's command, if the shell completes that.
    begins: int = 0


#: Asks the daemon for jobs and devices; None if no daemon listens.
Ask = Callable[[], "Mapping[str, Sequence[Mapping[str, object]]] | None"]


def complete(typed: Sequence[str], ask: Ask) -> Next:
    """Return what could replace the last word of `typed`, the words after `dibs`."""
    words = list(typed) or [""]
    front, name, rest = _front(words)
    if name is None:
        last = words[-1]
        if last.startswith("-"):
            return _matching(_option_words((*options.COMMON, pages.VERSION)), last)
        return _matching([Word(verb, cli.load(verb).SUMMARY) for verb in cli.VERBS], last)
    if name not in cli.VERBS:
        return Next()
    return _after_verb(name, rest, front + 1, ask)


def _front(words: list[str]) -> tuple[int, str | None, list[str]]:
    """Return the index of the verb, the verb (None while it is being typed), and the words after it."""
    at = 0
    while at < len(words) - 1 and words[at].startswith("-"):
        at += 2 if words[at] == "--color" else 1
    if at >= len(words) - 1:
        return at, None, []
    return at, cli.ALIASES.get(words[at], words[at]), words[at + 1 :]


def _after_verb(name: str, rest: list[str], begins: int, ask: Ask) -> Next:
    verb = cli.load(name)
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
                return _value(option, last, ask)
        at += 1
    if last.startswith("-") and not is_over:
        spelling, equals, value = last.partition("=")
        if equals and (option := known.get(spelling)) is not None:
            found = _value(option, value, ask)
            return Next(tuple(Word(f"{spelling}={word.text}", word.about) for word in found.words), found.by_shell)
        return _matching(_option_words(table), last)
    return _positional(verb, len(plain), plain, last, begins + len(rest) - 1, ask)


def _option_words(table: Sequence[Option[object]]) -> list[Word]:
    return [Word(option.names[-1], option.help) for option in table]


def _value(option: Option[object], typed: str, ask: Ask) -> Next:
    return _placeholder(option.metavar, typed, ask)


def _positional(verb: cli.Verb, place: int, plain: list[str], typed: str, at: int, ask: Ask) -> Next:
    """Return what the usage lines have at this position, if they match the words before it."""
    found = Next()
    for usage in verb.USAGE:
        forms = [form for form in usage.replace("[OPTIONS]", "").split() if not form.strip("[").startswith("-")]
        if not all(_agrees(form, word) for form, word in zip(forms, plain, strict=False)):
            continue
        form = forms[place] if place < len(forms) else forms[-1] if forms and "..." in forms[-1] else ""
        more = _placeholder(form.strip('[]."'), typed, ask)
        if more.by_shell == "command":
            more = Next((), "command", at)
        found = Next(
            tuple(dict.fromkeys((*found.words, *more.words))),
            found.by_shell or more.by_shell,
            max(found.begins, more.begins),
        )
    return found


def _agrees(form: str, word: str) -> bool:
    bare = form.strip("[].")
    return word in bare.split("|") if bare.islower() else True


def _placeholder(form: str, typed: str, ask: Ask) -> Next:
    if form in SHELL_KNOWS:
        return Next(by_shell=SHELL_KNOWS[form])
    if form in LISTS:
        # In a list with commas, only the last item is being typed.
        kept, _, last = typed.rpartition(",")
        before = f"{kept}," if kept else ""
        left = [word for word in VALUES["GPU"](ask) if word.text not in kept.split(",")]
        return Next(tuple(Word(before + word.text, word.about) for word in left if word.text.startswith(last)))
    if form in VALUES:
        return _matching(VALUES[form](ask), typed)
    if form and form.replace("|", "").replace("-", "").isalpha() and form.islower():
        return _matching([Word(word) for word in form.split("|")], typed)
    return Next()


def _matching(words: Sequence[Word], typed: str) -> Next:
    return Next(tuple(word for word in words if word.text.startswith(typed)))


def _jobs(ask: Ask) -> list[Word]:
    found = (ask() or {}).get("jobs", ())
    words = [Word(str(job["id"]), f"{job['state']} {job['name']}") for job in reversed(found)]
    fields: dict[str, str] = {}
    for job in reversed(found):
        for field in ("name", "project"):
            fields.setdefault(f"{field}:{job[field]}", f"job {job['id']}")
        tags = job["tags"]
        for tag in tags if isinstance(tags, list) else ():
            fields.setdefault(f"tag:{tag}", f"job {job['id']}")
    # A name with blanks would need quotes, which differ between shells.
    named = [Word(text, about) for text, about in fields.items() if not any(char.isspace() for char in text)]
    states = [Word(word, "all jobs that are so") for word in (*selectors.STATE_WORDS, *selectors.GROUP_WORDS)]
    return [*words, Word("@", "the last job"), Word("all", "every job"), *states, *named]


def _gpus(ask: Ask) -> list[Word]:
    return [Word(str(gpu["index"]), str(gpu["name"])) for gpu in (ask() or {}).get("gpus", ())]


def _settings(ask: Ask) -> list[Word]:
    return [Word(setting.name, setting.meaning) for setting in settings.SETTINGS]


def _pages(ask: Ask) -> list[Word]:
    verbs = [Word(name, cli.load(name).SUMMARY) for name in cli.VERBS]
    return [*verbs, *(Word(name, topic.summary) for name, topic in help_topics.TOPICS.items() if name not in cli.VERBS)]


#: Placeholders in usage lines and after options, and the source of their words.
VALUES: dict[str, Callable[[Ask], list[Word]]] = {
    "SELECTOR": _jobs,
    "JOBS": _jobs,
    "ID": _jobs,
    "GPU": _gpus,
    "SETTING": _settings,
    "VERB|TOPIC": _pages,
}
#: Lists of GPUs, whose placeholder is an example.
LISTS = ("0,2", "1,3")
SHELL_KNOWS = {"FILE": "files", "PATH": "files", "DIR": "folders", "COMMAND": "command"}

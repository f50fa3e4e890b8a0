"""Text that others wrote, made safe to show: a name or a log must not be able to drive the reader's terminal."""

from __future__ import annotations

import codecs
import re

#: Spelled as in a program's source; everything else is shown by its number.
FAMILIAR = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}

#: What a log may keep: colours. What it may not: all other controls, and marks that turn the direction of writing.
IN_LOGS = re.compile(
    "(\x1b\\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: The beginning of a colour whose end may come with the next bytes.
UNFINISHED = re.compile("\x1b(\\[[0-9;:]{0,40})?$")
RESET = "\x1b[0m"


def clean(text: str) -> str:
    """Return `text` on one line, with every character that is not for reading made visible."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or _is_blank(char) else visible(char) for char in text)


def _is_blank(char: str) -> bool:
    import unicodedata

    # Wide and unbreakable blanks are not "printable" to Python, and harmless.
    return unicodedata.category(char) == "Zs"


def visible(char: str) -> str:
    """Return a control character as an escape that people can read."""
    code = ord(char)
    if char in FAMILIAR:
        return FAMILIAR[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class LogCleaner:
    """Turns the bytes of a log, as they come, into text for a terminal: colours stay, other escapes become visible."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._is_coloured = False

    def feed(self, data: bytes) -> str:
        """Return what can be shown now; half a character or half a colour waits for its other half."""
        text = self._kept + self._decoder.decode(data)
        half = UNFINISHED.search(text)
        self._kept = text[half.start() :] if half else ""
        return self._clean(text[: len(text) - len(self._kept)])

    def finish(self) -> str:
        """Return what was waiting, and end a colour that the log left on."""
        text = self._clean(self._kept + self._decoder.decode(b"", True))
        self._kept = ""
        return text + (RESET if self._is_coloured else "")

    def _clean(self, text: str) -> str:
        return IN_LOGS.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        if found[1]:
            self._is_coloured = True
            return found[1]
        return visible(found[0])

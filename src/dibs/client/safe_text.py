"""Make untrusted text safe to print: a name or a log must not be able to control the terminal."""

from __future__ import annotations

import codecs
import re

#: Characters with a common escape; all others are shown by their code point.
FAMILIAR = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}

#: Group 1 matches colours, which a log may keep; the rest matches other control characters, bidirectional text marks
#: and lone surrogates.
IN_LOGS = re.compile(
    "(\x1b\\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: The start of a colour sequence whose end may come with the next bytes.
UNFINISHED = re.compile("\x1b(\\[[0-9;:]{0,40})?$")
RESET = "\x1b[0m"


def clean(text: str) -> str:
    """Return `text` on one line, with every unprintable character escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or _is_blank(char) else visible(char) for char in text)


def _is_blank(char: str) -> bool:
    import unicodedata

    # Python does not count wide and non-breaking spaces as printable, but they are harmless.
    return unicodedata.category(char) == "Zs"


def visible(char: str) -> str:
    """Return the readable escape of a control character."""
    code = ord(char)
    if char in FAMILIAR:
        return FAMILIAR[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class LogCleaner:
    """Converts the bytes of a log incrementally to text for a terminal: keeps colours, makes other escapes visible."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._is_coloured = False

    def feed(self, data: bytes) -> str:
        """Return the text that is complete; keep a partial character or colour sequence for the next call."""
        text = self._kept + self._decoder.decode(data)
        half = UNFINISHED.search(text)
        self._kept = text[half.start() :] if half else ""
        return self._clean(text[: len(text) - len(self._kept)])

    def finish(self) -> str:
        """Return the kept text, and reset colours if the log used any."""
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

"""Split a stream of bytes into commands, each as soon as it is complete."""

from __future__ import annotations

import codecs

#: A line with only this text opens or closes a block.
FENCE = "---"


class Lines:
    """Collects bytes and returns complete commands.

    Lines end with LF, trailing whitespace (including CR) is dropped, and bytes that are not UTF-8 survive as
    surrogates. With `is_joined`, a line that ends in a backslash continues on the next line, and the text between two
    lines `---` is one command. With `skips_blank`, blank lines and comments are skipped.
    """

    def __init__(self, *, is_joined: bool = False, skips_blank: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._is_joined = is_joined
        self._skips_blank = skips_blank
        #: The beginning of an incomplete line.
        self._rest = ""
        #: The lines of an open block, or those that ended in a backslash.
        self._block: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        """Return the commands that these bytes complete; empty `data` is the end of the stream."""
        text = self._rest + self._decoder.decode(data, final=not data)
        *whole, self._rest = text.split("\n")
        if not data and self._rest:
            whole.append(self._rest)
            self._rest = ""
        found = [command for line in whole for command in self._add(line.rstrip())]
        if not data and self._block:
            found += self._close()
        return found

    def _add(self, line: str) -> list[str]:
        """Return the command that this line completes, if any."""
        if not self._is_joined:
            return self._checked(line)
        is_open = self._block[:1] == [FENCE]
        if is_open and line == FENCE:
            return self._close()
        if is_open or (line == FENCE and not self._block) or _goes_on(line):
            self._block.append(line)
            return []
        return self._close(line) if self._block else self._checked(line)

    def _close(self, *last: str) -> list[str]:
        """Return the collected lines as one command; an empty block is no command."""
        lines = [*self._block, *last]
        self._block = []
        if lines[0] == FENCE:
            lines = lines[1:]
        return self._checked("\n".join(lines)) if lines else []

    def _checked(self, command: str) -> list[str]:
        return [] if self._skips_blank and is_blank(command) else [command]


def _goes_on(line: str) -> bool:
    """Return whether the line ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def is_blank(command: str) -> bool:
    """Return whether a command has only blanks and comments."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in command.split("\n"))

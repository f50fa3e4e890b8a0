"""Print a job's output from its log file, from the end or while it grows, in bounded memory."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from io import FileIO

from dibs.client.safe_text import LogCleaner
from dibs.foreground.signals import Left
from dibs.model import units

#: Bytes per read.
PIECE = 64 * 1024

#: Bytes to print before the caller gets control: a job can write faster than a terminal shows.
MOST_AT_ONCE = 4 * PIECE

#: Bytes that a terminal may lag behind after `Tail.hurry`, and how many of the skipped ones are still shown.
MOST_BEHIND = 1024 * 1024
STILL_SHOWN = 16 * 1024

#: Longest part of a line to show, where only the last lines are shown.
LONGEST_LINE = 1000


class Sink:
    """The destination of output: unchanged into a file or pipe, cleaned onto a terminal."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._cleaner = LogCleaner() if os.isatty(number) else None

    @property
    def is_terminal(self) -> bool:
        """Return whether the output goes to a terminal."""
        return self._cleaner is not None

    def write(self, data: bytes) -> None:
        """Write all of `data` now."""
        self._put(data if self._cleaner is None else _encoded(self._cleaner.feed(data)))

    def finish(self) -> None:
        """Write what the cleaner held back."""
        if self._cleaner is not None:
            self._put(_encoded(self._cleaner.finish()))

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._number, data) :]
            except BlockingIOError:
                # Another process that shares the terminal made it non-blocking; wait until it accepts more.
                select.select([], [self._number], [])
            except OSError as error:
                if error.errno == errno.EIO and self.is_terminal:
                    # The terminal is gone, and no signal reached us (nohup, or it is not our controlling terminal).
                    raise Left(signal.SIGHUP) from error
                raise


def _encoded(text: str) -> bytes:
    return text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")


class Tail:
    """A file that may not exist yet, and how much of it was printed."""

    def __init__(self, path: str, sink: Sink, start: int = 0) -> None:
        self.path = path
        self._sink = sink
        self._at = start
        self._file: FileIO | None = None
        self._is_hurried = False

    def turn_to(self, path: str) -> None:
        """Continue with another file, from its beginning."""
        if path != self.path:
            self.path, self._at, self._file = path, 0, None

    def hurry(self) -> None:
        """From now on skip what a terminal cannot show in time; a file or pipe still gets everything."""
        self._is_hurried = self._sink.is_terminal

    @property
    def is_found(self) -> bool:
        """Return whether the file was found."""
        return self._file is not None

    def pump(self) -> bool:
        """Print new output; return whether there may be more right now."""
        self._file = self._file or open_log(self.path)
        return self._file is not None and self._pass_on(self._file, MOST_AT_ONCE) == MOST_AT_ONCE

    def drain(self) -> None:
        """Print everything up to the current end, and what was held back."""
        self._file = self._file or open_log(self.path)
        if self._file is not None:
            self._pass_on(self._file, _size(self._file))
        self.leave()

    def leave(self) -> None:
        """Print what was held back and reset colours: no more output follows."""
        self._sink.finish()

    def _pass_on(self, file: FileIO, most: int) -> int:
        end = _size(file)
        if end < self._at:
            # The file was truncated: everything in it is new.
            self._at = 0
        if self._is_hurried and end - self._at > MOST_BEHIND:
            left_out = end - STILL_SHOWN - self._at
            self._at += left_out
            self._sink.write(f"\n[{units.format_size(left_out)} left out: they are in {self.path}]\n".encode())
        file.seek(self._at)
        done = 0
        while done < most and (data := file.read(min(PIECE, most - done))):
            self._sink.write(data)
            self._at += len(data)
            done += len(data)
        return done


def open_log(path: str) -> FileIO | None:
    """Open a log; None if it does not exist or is not a regular file."""
    try:
        # A job may write to a fifo or a terminal, and opening one of those would hang.
        file = FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return None
    if os.path.isfile(f"/proc/self/fd/{file.fileno()}"):
        return file
    file.close()
    return None


def _size(file: FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def start_of_last(path: str, lines: int) -> int:
    """Return the offset of the last `lines` lines of a file; 0 if it cannot be read."""
    from dibs.logs import files

    file = open_log(path)
    if file is None:
        return 0
    with file:
        size = _size(file)
        return files.last_lines(files.LogFile(file.fileno(), size), lines, farthest=size)


def last_lines(path: str, lines: int) -> list[str]:
    """Return the last lines of a log as text, with overlong lines cut."""
    start = start_of_last(path, lines)
    file = open_log(path)
    if file is None:
        return []
    with file:
        most = lines * LONGEST_LINE
        text = os.pread(file.fileno(), most, max(start, _size(file) - most)).decode(errors="replace")
    # A progress bar rewrites its line: a terminal shows only the last version.
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")[-lines:] if text]

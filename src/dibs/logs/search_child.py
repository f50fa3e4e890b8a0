"""Search a log of any size: lines that match, and the offset of every thousandth line.

A separate program, run as `python -I -S search_child.py QUESTION` with the log as stdin; it answers in JSON. An
expression may never finish and blocks all other threads of its process, so the kernel ends this process after some
seconds of CPU time. A long search is answered in parts: `next` is the offset of the next part.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator

#: Bytes per read; a longer line is searched in pieces of this size.
BLOCK = 1024 * 1024
#: Seconds of CPU time after which a part ends, and after which the kernel ends the program.
STRETCH_S = 0.5
MOST_CPU_S = 2
#: Memory limit in bytes, because an expression may need more than the machine has.
MOST_MEMORY = 1024**3
#: Characters returned of a line, and how many of them precede the match in a longer line.
TOLD, TOLD_BEFORE = 1000, 200
#: Lines between two entries of the index.
EVERY = 1000
TRACEBACK = b"Traceback (most recent call last)"
EXIT_BAD_EXPRESSION = 3


def search(fd: int, size: int, begin: int, question: dict[str, object], most: int) -> dict[str, object]:
    """Return at most `most` matching lines, and where the search continues (None: it is complete)."""
    text, is_case = str(question["text"]), bool(question["case"])
    is_literal = not question["regex"]
    pattern = re.compile(re.escape(text) if is_literal else text, 0 if is_case else re.IGNORECASE)
    needle = (text if is_case else text.lower()).encode() if is_literal and text.isascii() else None
    matches: list[dict[str, object]] = []
    number = 0
    until = time.process_time() + STRETCH_S
    for at, block in blocks(fd, size, begin):
        end, ended = at + len(block), number + block.count(b"\n")
        if needle is None or needle in (block if is_case else block.lower()):
            for line in block.removesuffix(b"\n").split(b"\n"):
                if len(matches) == most:
                    return {"matches": matches, "next": at, "size": size}
                shown = line.decode(errors="replace")
                if found := pattern.search(shown):
                    line_number = None if begin else number
                    matches.append({"offset": at, "line": line_number, "text": cut(shown, found.start())})
                at += len(line) + 1
                number += 1
        number = ended
        if time.process_time() > until:
            return {"matches": matches, "next": end if end < size else None, "size": size}
    return {"matches": matches, "next": None, "size": size}


def index(fd: int, size: int, begin: int, number: int) -> dict[str, object]:
    """Return the offset of every thousandth line. `number` is that of the line at the byte `begin`."""
    offsets = []
    if begin < size and number % EVERY == 0 and (begin == 0 or os.pread(fd, 1, begin - 1) == b"\n"):
        offsets.append(begin)
    traceback, tail = None, b""
    at = begin
    until = time.process_time() + STRETCH_S
    while at < size and time.process_time() < until:
        block = os.pread(fd, min(BLOCK, size - at), at)
        if not block:
            # The file was truncated.
            break
        if traceback is None and (found := (tail + block).find(TRACEBACK)) >= 0:
            traceback = at - len(tail) + found
        tail = block[-len(TRACEBACK) + 1 :]
        count = block.count(b"\n")
        if (number + count) // EVERY != number // EVERY:
            offsets += [at + place for place in starts(block, number)]
        number += count
        at += len(block)
    if offsets and offsets[-1] == at:
        # The part that begins there includes it, if anything is ever written there.
        offsets.pop()
    is_over = at >= size or not os.pread(fd, 1, at)
    ends_open = is_over and size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    return {
        "size": size,
        "lines": number + ends_open,
        "every": EVERY,
        "offsets": offsets,
        "next": None if is_over else at,
        "line": number,
        "traceback": traceback,
    }


def starts(block: bytes, number: int) -> list[int]:
    """Return the positions in a block of lines whose number is a multiple of a thousand."""
    found, place = [], 0
    while (place := block.find(b"\n", place) + 1) > 0:
        number += 1
        if number % EVERY == 0:
            found.append(place)
    return found


def blocks(fd: int, size: int, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, each with its offset, until the end of the file; split a line that is too long."""
    at = begin
    while at < size:
        block = os.pread(fd, min(BLOCK, size - at), at)
        if not block:
            return
        end = block.rfind(b"\n") + 1
        if end and at + len(block) < size:
            block = block[:end]
        yield at, block
        at += len(block)


def cut(line: str, place: int) -> str:
    """Return the part of a line to show: its beginning, or the text around a match further on."""
    begin = 0 if place < TOLD - TOLD_BEFORE else place - TOLD_BEFORE
    return line[begin : begin + TOLD]


def main() -> int:
    """Answer the question in the first argument about the file on stdin."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    question = json.loads(sys.argv[1])
    fd, size, begin = 0, question["size"], question["begin"]
    if question["what"] == "lines":
        print(json.dumps(index(fd, size, begin, question["line"])))
        return 0
    try:
        answer = search(fd, size, begin, question, question["most"])
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        print(str(error) or type(error).__name__)
        return EXIT_BAD_EXPRESSION
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())

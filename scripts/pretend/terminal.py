"""`scripts/record-terminal`: type commands in a real terminal and draw what it showed as a moving picture.

Each command runs in a pseudo-terminal against a daemon of its own with four pretend GPUs. The picture is an SVG whose
lines appear by CSS animation: it needs no player, no script and no network, and text stays text.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS, ROWS = 88, 26

#: What the commands train: a few seconds, and a loss that depends on the learning rate.
PROGRAM = """
import argparse, math, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
for step in range(1, 6):
    time.sleep(0.5)
    loss = 0.2 + abs(math.log10(options.lr) + 2) / 4 + 1 / step + options.seed / 50
    print(f"step {step} loss {loss:.3f}", flush=True)
    with open(os.environ["DIBS_REPORT"], "a") as report:
        report.write(f'{{"loss": {loss:.3f}, "step": {step}}}\\n')
"""
COMMANDS = (
    "dibs add -n baseline python train.py",
    "dibs add -g 2 -t 2h -n big python train.py --lr 0.03",
    'dibs sweep -n lr "python train.py --lr {lr}" -p lr 0.1 0.03 0.01 0.003',
    "dibs status",
    "dibs why @",
    "dibs wait",
    "dibs results lr --metric loss",
)
#: Seconds: to type one character, to look at an output, and to look at the last one.
TYPE_S, READ_S, LAST_S = 0.035, 1.6, 5.0
COLOURS = {
    "30": "#7d8590", "31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff",
    "36": "#76e3ea", "37": "#c9d1d9", "90": "#7d8590", "91": "#ffa198", "92": "#7ee787", "93": "#f2cc60",
}  # fmt: skip
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\r(?!\n)")
FONT, LINE, LEFT, TOP = 14, 19, 16, 44
CHAR = FONT * 0.6


@dataclass(frozen=True)
class Piece:
    """Text in one colour."""

    text: str
    colour: str = "#c9d1d9"
    is_bold: bool = False


@dataclass(frozen=True)
class Row:
    """A line of the terminal and when it appears; a typed one appears character by character."""

    pieces: tuple[Piece, ...]
    at_s: float
    typed_s: float = 0.0


def main() -> int:
    """Record all commands and write the picture."""
    with _queue() as environ:
        rows, total_s = record(environ)
    PICTURE.write_text(draw(rows, total_s))
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes, {total_s:.0f} s")
    return 0


@contextlib.contextmanager
def _queue() -> Iterator[dict[str, str]]:
    """Provide the environment of a queue that ends with this program."""
    with tempfile.TemporaryDirectory(prefix="dibs-terminal-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        own = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
        environ = own | {
            "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}", "HOME": name, "PWD": name, "DIBS_HOME": f"{name}/state",
            "DIBS_LEASE_DIR": f"{name}/leases", "DIBS_DEVICES": "fake:4", "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS), "LINES": str(ROWS),
        }  # fmt: skip
        (folder / "leases").mkdir()
        (folder / "leases").chmod(0o1777)
        try:
            yield environ
        finally:
            dibs = [f"{ROOT}/.venv/bin/dibs"]
            subprocess.run([*dibs, "cancel", "-y", "unfinished"], env=environ, capture_output=True, check=False)
            subprocess.run([*dibs, "daemon", "stop"], env=environ, capture_output=True, check=False)


def record(environ: dict[str, str]) -> tuple[list[Row], float]:
    """Return what the terminal showed, and how long the picture lasts."""
    rows: list[Row] = []
    now_s = 0.5
    for command in COMMANDS:
        typed_s = len(command) * TYPE_S
        rows.append(Row((Piece("$ ", "#7ee787", True), Piece(command, "#f0f6fc")), now_s, typed_s))
        now_s += typed_s + 0.3
        rows += [Row(pieces(line), now_s) for line in shown(run(command, environ))]
        now_s += READ_S
    return rows, now_s + LAST_S


def run(command: str, environ: dict[str, str]) -> str:
    """Run a command in a pseudo-terminal; return all it printed."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = subprocess.Popen(
        command, shell=True, env=environ, cwd=environ["HOME"], stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    found = b""
    # The kernel answers EIO when the last writer is gone.
    with contextlib.suppress(OSError):
        while chunk := os.read(master, 65536):
            found += chunk
    os.close(master)
    if child.wait():
        sys.exit(f"{command}: exit code {child.returncode}\n{found.decode()}")
    return found.decode()


def shown(text: str) -> list[str]:
    """Return the lines that remain on the terminal: of a line that was drawn again, the last drawing."""
    lines = text.replace("\r\n", "\n").split("\n")
    last = [re.split(r"\r|\x1b\[2?K", line.rstrip("\r"))[-1] for line in lines]
    return last[:-1] if last and not last[-1].strip() else last


def pieces(line: str) -> tuple[Piece, ...]:
    """Split a line at its escape sequences for colours."""
    found: list[Piece] = []
    colour, is_bold, start = "#c9d1d9", False, 0
    for match in ESCAPE.finditer(line):
        if text := line[start : match.start()]:
            found.append(Piece(text, colour, is_bold))
        start = match.end()
        if match[2] == "m":
            for code in (match[1] or "0").split(";"):
                colour = COLOURS.get(code, "#c9d1d9" if code in ("0", "39") else colour)
                is_bold = code == "1" or (is_bold and code not in ("0", "22"))
                colour = "#8b949e" if code == "2" else colour
    return (*found, Piece(line[start:], colour, is_bold)) if line[start:] else tuple(found)


def draw(rows: list[Row], total_s: float) -> str:
    """Return the picture: every line once, shown from its time on, in a window that scrolls."""
    width, height = round(2 * LEFT + COLUMNS * CHAR), TOP + ROWS * LINE + 12
    styles, texts = [], []
    for number, row in enumerate(rows):
        percent = 100 * row.at_s / total_s
        styles.append(f"@keyframes r{number}{{0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}}}")
        body = "".join(_span(piece) for piece in row.pieces)
        clip = ""
        if row.typed_s:
            end = 100 * (row.at_s + row.typed_s) / total_s
            letters = sum(len(piece.text) for piece in row.pieces)
            styles.append(
                f"@keyframes t{number}{{0%,{percent:.2f}%{{width:{2 * CHAR:.1f}px;animation-timing-function:"
                f"steps({letters - 2})}}{end:.2f}%,100%{{width:{letters * CHAR + 2:.1f}px}}}}"
            )
            texts.append(
                f'<clipPath id="c{number}"><rect x="{LEFT}" y="{number * LINE - LINE}" height="{LINE + 6}" '
                f'style="animation:t{number} {total_s:.1f}s infinite"/></clipPath>'
            )
            clip = f' clip-path="url(#c{number})"'
        texts.append(
            f'<text x="{LEFT}" y="{number * LINE}"{clip} xml:space="preserve" '
            f'style="animation:r{number} {total_s:.1f}s infinite">{body}</text>'
        )
    return SVG.format(
        width=width, height=height, font=FONT, top=TOP, window=ROWS * LINE + 8, clip=height - 6,
        styles="".join([*styles, _scroll(rows, total_s)]), texts="".join(texts), total=f"{total_s:.1f}",
        title=escape("dibs in a terminal: " + "; ".join(COMMANDS)),
    )  # fmt: skip


def _span(piece: Piece) -> str:
    bold = ' font-weight="bold"' if piece.is_bold else ""
    return f'<tspan fill="{piece.colour}"{bold}>{escape(piece.text)}</tspan>'


def _scroll(rows: list[Row], total_s: float) -> str:
    """Return the animation that keeps the newest line in the window."""
    steps, before = ["0%{transform:translateY(0)}"], 0
    for at_s in sorted({row.at_s for row in rows}):
        over = max(0, sum(row.at_s <= at_s for row in rows) - ROWS)
        if over != before:
            percent = 100 * at_s / total_s
            steps += [f"{percent - 0.01:.2f}%{{transform:translateY({-before * LINE}px)}}"]
            steps += [f"{percent:.2f}%{{transform:translateY({-over * LINE}px)}}"]
            before = over
    steps.append(f"100%{{transform:translateY({-before * LINE}px)}}")
    return f"@keyframes scroll{{{''.join(steps)}}}"


SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="{font}">
<title>{title}</title>
<style>{styles}#rows{{animation:scroll {total}s infinite}}
@media (prefers-reduced-motion:reduce){{*{{animation:none!important}}clipPath rect{{width:100%}}}}</style>
<rect width="100%" height="100%" rx="10" fill="#0d1117"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/>\
<circle cx="62" cy="20" r="6" fill="#28c840"/>
<clipPath id="window"><rect x="0" y="{top}" width="{width}" height="{window}" transform="translate(0 -14)"/></clipPath>
<g clip-path="url(#window)"><g transform="translate(0 {top})"><g id="rows">{texts}</g></g></g>
</svg>
"""

if __name__ == "__main__":
    sys.exit(main())

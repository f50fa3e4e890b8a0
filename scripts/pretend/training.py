"""A training that only pretends: what it prints and the numbers it reports, made by its arguments alone.

The jobs of the demo run this file as `train.py`; the logs of past jobs are written by the same functions, so both look
alike. Standard library only. The file `pace.json` beside it says how far a run has come already, by its name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

#: Batches of an epoch as the progress bar counts them, and how often it is drawn.
BATCHES, DRAWN = 312, 6

GREY, GREEN, YELLOW, BOLD, PLAIN = "\x1b[90m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"

#: How a run ends that does not end well, by the word for it.
TROUBLES = {
    "oom": """Traceback (most recent call last):
  File "train.py", line 212, in <module>
    main()
  File "train.py", line 187, in main
    loss = step(model, batch)
  File "train.py", line 141, in step
    scaler.scale(loss).backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.25 GiB, of which 1.13 GiB is free.
""",
    "nan": """Traceback (most recent call last):
  File "train.py", line 212, in <module>
    main()
  File "train.py", line 190, in main
    assert math.isfinite(loss), f"loss is {loss}"
AssertionError: loss is nan
""",
    "data": """Traceback (most recent call last):
  File "train.py", line 96, in load
    with open(shard, "rb") as file:
FileNotFoundError: [Errno 2] No such file or directory: 'data/librispeech/shard-0047.tar'
""",
}  # fmt: skip


class Epoch(NamedTuple):
    """One epoch of a run: what it prints, and what it reports."""

    text: str
    numbers: dict[str, float]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a run; others than these are taken and mean nothing."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", default="vit-b16")
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument("--wd", type=float, default=3e-3)
    parser.add_argument("--bs", type=int, default=64)
    parser.add_argument("--opt", default="adamw")
    parser.add_argument("--drop", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    return parser.parse_known_args(list(words))[0]


def best(args: argparse.Namespace) -> float:
    """Return the accuracy that a run comes to: there is one good corner, and the way to it is smooth."""
    chance = random.Random(repr(sorted(vars(args).items())))
    lost = 0.022 * math.log10(args.lr / 7e-4) ** 2 + 0.006 * math.log10(args.wd / 3e-3) ** 2
    # Larger models come further.
    lost += {"conformer-s": 0.09, "conformer-m": 0.04}.get(args.model, 0.0)
    lost += {"adamw": 0.0, "lion": 0.003}.get(args.opt, 0.035) + 0.25 * (args.drop - 0.22) ** 2
    return round(max(0.31, 0.917 - lost - 0.002 * abs(math.log2(args.bs / 64)) + chance.gauss(0, 0.004)), 4)


def header(args: argparse.Namespace) -> str:
    """Return what a run prints before its first epoch."""
    return (
        f"{BOLD}{args.model}{PLAIN}  lr {args.lr:g}  wd {args.wd:g}  bs {args.bs}  {args.opt}  seed {args.seed}\n"
        f"{GREY}torch 2.9.1  cuda 12.8  1 x NVIDIA A100-SXM4-80GB{PLAIN}\n"
        f"{YELLOW}warning: torch.compile: 2 graph breaks in forward(); see TORCH_LOGS=graph_breaks{PLAIN}\n"
        "train: 1281167 samples, val: 50000 samples\n"
    )


def epochs(args: argparse.Namespace) -> Iterator[Epoch]:
    """Yield the epochs of a run, one after the other: the loss falls, the accuracy rises."""
    chance, top = random.Random(f"{args.model} {args.seed} {args.lr}"), best(args)
    # A larger step learns faster at first, and is less steady.
    ease = min(2.0, max(0.5, (args.lr / 7e-4) ** 0.2))
    speed, unrest = 4.5 * ease, 0.003 * ease
    for number in range(1, args.epochs + 1):
        learnt = 1 - math.exp(-speed * number / args.epochs)
        accuracy = round(max(0.0, top * learnt / (1 - math.exp(-speed)) + chance.gauss(0, unrest)), 4)
        loss = round(0.34 + (1 - top) * 3 + 5.9 * (1 - learnt) ** 1.3 + abs(chance.gauss(0, 0.02)), 4)
        bars = "".join(_bar(number, args.epochs, at, loss) for at in range(1, DRAWN + 1))
        line = f"epoch {number}/{args.epochs}  loss {loss:.4f}  acc {accuracy:.4f}  lr {args.lr * (1.02 - learnt):.2e}"
        mark = f"  {GREEN}best{PLAIN}" if number == args.epochs else ""
        yield Epoch(f"{bars}\n{line}{mark}\n", {"step": number * BATCHES, "loss": loss, "acc": accuracy})


def _bar(number: int, of: int, at: int, loss: float) -> str:
    done = at / DRAWN
    filled = "█" * round(done * 20)
    return f"\repoch {number}/{of}: {done:4.0%}|{filled:<20}| {round(BATCHES * done)}/{BATCHES} [loss={loss:.3f}]"


def report_line(numbers: dict[str, float], at: datetime) -> str:
    """Return a line of the report, as `dibs.report` would write it."""
    return json.dumps({"at": f"{at:%Y-%m-%dT%H:%M:%S}.000Z", **numbers}) + "\n"


def main() -> None:
    """Print what was printed before, then an epoch after the other."""
    args = parse(sys.argv[1:])
    paces = Path(__file__).with_name("pace.json")
    pace = json.loads(paces.read_text()).get(os.environ.get("DIBS_JOB_NAME", ""), {}) if paces.exists() else {}
    past, every_s = int(pace.get("past", 0)), float(pace.get("every_s", 2))
    began_at = datetime.now(UTC) - timedelta(seconds=past * every_s)
    sys.stdout.write(header(args))
    with open(os.environ.get("DIBS_REPORT", os.devnull), "a", encoding="utf-8", buffering=1) as report:
        for number, epoch in enumerate(epochs(args), 1):
            if number > past:
                time.sleep(every_s)
            sys.stdout.write(epoch.text)
            sys.stdout.flush()
            report.write(report_line(epoch.numbers, began_at + timedelta(seconds=number * every_s)))


if __name__ == "__main__":
    main()

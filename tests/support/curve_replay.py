"""Recorded learning curves (`benchmarks.curves`), run again on a few GPUs under a rule that stops runs early."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from dibs.sweeps.search import early_stop
from dibs.sweeps.search.early_stop import Curve

DATA = Path(__file__).parents[1] / "data"
#: By problem, then by run: the loss after each epoch; None: not a number. The rules were chosen on the first ones only.
RECORDED: dict[str, list[list[float | None]]] = json.loads((DATA / "curves.json").read_text())
HELD_OUT: dict[str, list[list[float | None]]] = json.loads((DATA / "held_out_curves.json").read_text())


def replay(rule: str, curves: list[list[float | None]], order: list[int], gpus: int = 4) -> tuple[float, set[int]]:
    """Run recorded curves on some GPUs; return the part of the steps that the rule saved, and what it stopped."""
    waiting = list(order)
    running: dict[int, int] = {}
    ended: set[int] = set()
    cut: set[int] = set()
    points: dict[int, list[tuple[float, float]]] = {}
    while waiting or running:
        while waiting and len(running) < gpus:
            run = waiting.pop(0)
            running[run], points[run] = 0, []
        for run in list(running):
            value = curves[run][running[run]]
            running[run] += 1
            points[run].append((running[run], math.nan if value is None else value))
            if running[run] == len(curves[run]):
                del running[run]
                ended.add(run)
        seen = [Curve(run, order.index(run), points[run], run in running, run in ended) for run in points]
        for stop in early_stop.decide(rule, seen, "minimize"):
            del running[stop.run]
            cut.add(stop.run)
    return 1 - sum(map(len, points.values())) / sum(map(len, curves)), cut


def best(curves: list[list[float | None]]) -> int:
    """Return the run that ends best."""
    ends = [math.inf if curve[-1] is None else curve[-1] for curve in curves]
    return ends.index(min(ends))


def lost(curves: list[list[float | None]], cut: set[int]) -> float:
    """Return how much worse the best run that is left ends, as a part of what the best one has."""
    left = [curve for run, curve in enumerate(curves) if run not in cut]
    return (left[best(left)][-1] or math.inf) / (curves[best(curves)][-1] or math.inf) - 1


def results(
    orders: int, recorded: dict[str, list[list[float | None]]] = RECORDED
) -> Iterator[tuple[str, str, list[float], int, float]]:
    """Yield rule, problem, what was saved in each order of the runs, in how many the best was kept, and the loss."""
    for rule in early_stop.RULES:
        for problem, curves in recorded.items():
            saved, kept, worst = [], 0, 0.0
            for seed in range(orders):
                order = list(range(len(curves)))
                if seed:
                    random.Random(seed).shuffle(order)
                part, cut = replay(rule, curves, order)
                saved.append(part)
                kept += best(curves) not in cut
                worst = max(worst, lost(curves, cut))
            yield rule, problem, saved, kept, worst

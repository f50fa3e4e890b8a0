"""How well `dibs sweep --search` searches, beside Optuna alone: `scripts/measure-search`.

Standard functions with noise, four pretend GPUs. Searches differ much from seed to seed, so quality is compared over
many seeds in simulated time: the study of dibs as the daemon drives it, and Optuna with four workers. Printed: how many
searches chose the same points in both; the best value (without its noise) after some numbers of trials, as the median
over seeds; the mean difference at the end, with the interval in which 95 % of resampled seeds lie; and how many trials
dibs needs for what Optuna has at the end. A few searches run for real, as jobs: they say how busy the GPUs were. And
what the rules of `--early-stop` save on recorded curves.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

GPUS = 4
RESAMPLES = 4000
NOISE = 0.05

Point = Mapping[str, float]


def branin(at: Point) -> float:
    """Two dimensions, three equal minima of 0.398."""
    x, y = 15 * at["a"] - 5, 15 * at["b"]
    inner = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return inner**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann(at: Point) -> float:
    """Six dimensions, the lowest of six minima is -3.32."""
    alpha = (1.0, 1.2, 3.0, 3.2)
    scale = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
    centre = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886), (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650), (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )  # fmt: skip
    values = [at[name] for name in "abcdef"]
    return -sum(
        weight * math.exp(-sum(s * (value - c) ** 2 for s, value, c in zip(scales, values, centres, strict=True)))
        for weight, scales, centres in zip(alpha, scale, centre, strict=True)
    )


def ackley(at: Point) -> float:
    """Four dimensions, many local minima, the lowest is 0."""
    values = [10 * at[name] - 4 for name in "abcd"]
    root = math.sqrt(sum(value**2 for value in values) / len(values))
    waves = sum(math.cos(2 * math.pi * value) for value in values) / len(values)
    return -20 * math.exp(-0.2 * root) - math.exp(waves) + 20 + math.e


def rosenbrock(at: Point) -> float:
    """Three dimensions, the logarithm of a curved valley whose lowest point is -3."""
    values = [4 * at[name] - 2 for name in "abc"]
    return math.log10(1e-3 + sum(100 * (y - x**2) ** 2 + (1 - x) ** 2 for x, y in pairwise(values)))


def styblinski(at: Point) -> float:
    """Five dimensions, the lowest of 32 minima is -195.8."""
    return sum(x**4 - 16 * x**2 + 5 * x for x in (10 * at[name] - 5 for name in "abcde")) / 2


def levy(at: Point) -> float:
    """Four dimensions, many local minima in a bowl, the lowest is 0."""
    first, *rest = (1 + (20 * at[name] - 11) / 4 for name in "abcd")
    inner = sum((x - 1) ** 2 * (1 + 10 * math.sin(math.pi * x + 1) ** 2) for x in (first, *rest[:-1]))
    return math.sin(math.pi * first) ** 2 + inner + (rest[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * rest[-1]) ** 2)


class Problem(NamedTuple):
    """A function, its parameters (all from 0 to 1), and how far its noise goes."""

    value: Callable[[Point], float]
    names: str
    noise: float


PROBLEMS = {
    "branin": Problem(branin, "ab", 0.5),
    "hartmann": Problem(hartmann, "abcdef", NOISE),
    "ackley": Problem(ackley, "abcd", 0.2),
    "rosenbrock": Problem(rosenbrock, "abc", 0.05),
    "styblinski": Problem(styblinski, "abcde", 2.0),
    "levy": Problem(levy, "abcd", 0.2),
}
#: Problems that are also searched for real.
AS_JOBS = ("branin", "hartmann", "ackley")


def noisy(name: str, at: Point, trial: int, seed: int) -> tuple[float, float]:
    """Return the value of a problem with its noise, and the seconds that it takes.

    Both depend on the number of the trial and on the seed of its search, so that two searches that choose alike are
    told alike: dibs writes points with fewer digits than Optuna has.
    """
    problem = PROBLEMS[name]
    chance = random.Random(json.dumps([name, trial, seed]))
    return problem.value(at) + chance.gauss(0, problem.noise), 1 + chance.random()


class Run(NamedTuple):
    """One trial: its number, parameters, reported value, and when it ran."""

    number: int
    at: dict[str, float]
    value: float
    began: float
    ended: float


def with_dibs(name: str, trials: int, seed: int, takes: float, environ: Mapping[str, str]) -> list[Run]:
    """Search with dibs; return the trials in the order in which they ended."""

    def dibs(*words: str) -> str:
        command = [sys.executable, "-m", "dibs", *words]
        return subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout

    sweep = f"{name}-{seed}"
    spaces = [word for each in PROBLEMS[name].names for word in ("-p", f"{each}=uniform(0,1)")]
    words = shlex.join([sys.executable, "-m", "benchmarks.searches", "--evaluate", name, "--takes", str(takes)])
    options = ["--search", "tpe", "--trials", str(trials), "--minimize", "loss", "--seed", str(seed), "-n", sweep]
    dibs("sweep", "-q", f"{words} {{args:json}}", *spaces, *options, "--metric", "loss=loss=(.*)", "-g", "1")
    dibs("wait", f"sweep:{sweep}")
    found = json.loads(dibs("results", sweep, "--json"))["runs"]
    runs = [
        Run(
            one["index"], one["params"], one["numbers"]["loss"], _moment(one["started_at"]), _moment(one["finished_at"])
        )
        for one in found
    ]
    return sorted(runs, key=lambda run: run.ended)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def busy(runs: Sequence[Run]) -> float:
    """Return the part of the time that the GPUs were in use, from the first start to the last one."""
    first, last = min(run.began for run in runs), max(run.began for run in runs)
    used = sum(min(run.ended, last) - run.began for run in runs)
    return used / (GPUS * (last - first))


def gaps(runs: Sequence[Run]) -> list[float]:
    """Return the seconds from the end of each trial to the start of the one that it made room for."""
    began = sorted(run.began for run in runs)[GPUS:]
    ended = sorted(run.ended for run in runs)
    return [later - earlier for earlier, later in zip(ended, began, strict=False)]


# -- Optuna alone -----------------------------------------------------------------------------------------------------


def with_optuna(name: str, trials: int, seed: int) -> list[Run]:
    """Search with Optuna and four workers in simulated time; return the trials in the order in which they end."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    running: list[tuple[float, int, Run]] = []
    found: list[Run] = []
    now = 0.0
    for number in range(trials):
        if len(running) == GPUS:
            now = _end_first(study, running, found)
        trial = study.ask()
        at = {each: trial.suggest_float(each, 0.0, 1.0) for each in PROBLEMS[name].names}
        value, takes_s = noisy(name, at, number, seed)
        heapq.heappush(running, (now + takes_s, number, Run(number, at, value, now, now + takes_s)))
    while running:
        _end_first(study, running, found)
    return found


def _end_first(study: Any, running: list[tuple[float, int, Run]], found: list[Run]) -> float:
    at, number, run = heapq.heappop(running)
    study.tell(number, run.value)
    found.append(run)
    return at


def with_study(name: str, trials: int, seed: int) -> list[Run]:
    """Search with the study of dibs in simulated time, as the daemon drives it on GPUs that nobody else uses."""
    from dibs.sweeps import parameters, records, spaces
    from dibs.sweeps.search import codec
    from dibs.sweeps.search import trials as rules
    from dibs.sweeps.search.study import Study

    space = spaces.build([parameters.parse([f"{each}=uniform(0,1)"]) for each in PROBLEMS[name].names])
    about = {"space": codec.encode(space), "sampler": "tpe", "seed": seed, "goal": "minimize", "storage": None}
    study, search = Study(about), records.Search("tpe", trials, seed, "")
    known: list[records.Run] = []
    running: list[tuple[float, int, Run]] = []
    found: list[Run] = []
    now = 0.0
    while len(found) < trials:
        wanted = rules.need(search, known, "loss", GPUS).trials
        for point in study.ask([rules.told(run, "loss") for run in known], wanted).points if wanted else ():
            number, at = len(known), point.data()
            value, takes_s = noisy(name, at, number, seed)
            known.append(records.Run(None, 1, number, at, "running", None, None, {}, None, None))
            heapq.heappush(running, (now + takes_s, number, Run(number, at, value, now, now + takes_s)))
        if wanted:
            continue
        now, number, ended = heapq.heappop(running)
        known[number] = replace(known[number], word="done", numbers={"loss": ended.value})
        found.append(ended)
    study.close()
    return found


# -- the comparison ---------------------------------------------------------------------------------------------------


def best_so_far(name: str, runs: Sequence[Run]) -> list[float]:
    """Return the value without noise of the best trial so far, after each trial."""
    found: list[float] = []
    best: Run | None = None
    for run in runs:
        best = run if best is None or run.value < best.value else best
        found.append(PROBLEMS[name].value(best.at))
    return found


def medians(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of several curves at each of their points."""
    return [statistics.median(values) for values in zip(*curves, strict=True)]


def compare(name: str, trials: int, numbers: range) -> None:
    """Print how dibs and Optuna search one problem in simulated time."""
    ours = [with_study(name, trials, seed) for seed in numbers]
    theirs = [with_optuna(name, trials, seed) for seed in numbers]
    dibs, optuna = (medians([best_so_far(name, runs) for runs in found]) for found in (ours, theirs))
    ends_of = [[best_so_far(name, runs)[-1] for runs in found] for found in (ours, theirs)]
    spread = sorted(ends_of[1])
    mean, low, high = difference(*ends_of)
    needed = next((count for count, value in enumerate(dibs, 1) if value <= optuna[-1]), None)
    ends = ", ".join(f"{count}: {dibs[count - 1]:.3g} / {optuna[count - 1]:.3g}" for count in _marks(trials))
    print(f"{name}, {len(numbers)} seeds: best after N trials, dibs / Optuna with {GPUS} workers: {ends}")
    middle = f"{spread[len(spread) // 4]:.3g} to {spread[-1 - len(spread) // 4]:.3g}"
    reached = f"after {needed} of {trials} trials" if needed else f"not within {trials} trials"
    equal = sum(_are_alike(*pair) for pair in zip(ours, theirs, strict=True))
    print(f"  the same {trials} points in {equal} of {len(numbers)} searches")
    print(f"  dibs minus Optuna at the end: {mean:+.3g}, with 95 % of resampled seeds from {low:+.3g} to {high:+.3g}")
    print(
        f"  what Optuna has at the end ({optuna[-1]:.3g}; half of its seeds: {middle}), dibs has {reached}", flush=True
    )


def _are_alike(ours: Sequence[Run], theirs: Sequence[Run]) -> bool:
    """Tell whether two searches tried the same points, up to the digits that dibs writes."""
    return all(
        math.isclose(one.at[name], other.at[name], abs_tol=1e-5)
        for one, other in zip(ours, theirs, strict=True)
        for name in one.at
    )


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean difference between seeds, and the bounds of 95 % of its values when seeds are drawn again."""
    pairs = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    chance = random.Random(0)
    means = sorted(statistics.fmean(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return statistics.fmean(pairs), means[RESAMPLES // 40], means[-1 - RESAMPLES // 40]


def run(name: str, trials: int, runs: int, takes: float, environ: Mapping[str, str]) -> None:
    """Print how busy the GPUs are while searches run as jobs, and how long one is free between two trials."""
    found = [with_dibs(name, trials, seed, takes, environ) for seed in range(runs)]
    used = [busy(each) for each in found]
    best = statistics.median(best_so_far(name, each)[-1] for each in found)
    shares = ", ".join(f"{share:.1%}" for share in used)
    free_ms = statistics.median(gap for each in found for gap in gaps(each)) * 1000
    print(
        f"{name}, {runs} searches of {trials} jobs of {takes:g} to {2 * takes:g} s: GPUs busy {shares}, free for "
        f"{free_ms:.0f} ms between two; median of the best {best:.3g}",
        flush=True,
    )


def _marks(trials: int) -> list[int]:
    return [trials // 4, trials // 2, trials]


STUDY = """
import random, sys, time
import dibs, optuna

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    time.sleep(0.5 + 2 * random.Random(trial.number).random())
    return x

if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage="sqlite:///study.db", study_name="own", load_if_exists=True)
    dibs.optuna.optimize(study, objective, n_trials=40, gpus=1)
"""


def run_study(folder: Path, environ: Mapping[str, str]) -> None:
    """Print how busy the GPUs are with a study of the user's own, whose trials take from 0.5 to 2.5 s."""
    (folder / "study.py").write_text(STUDY)
    subprocess.run([sys.executable, "-W", "ignore", "study.py"], env=environ, cwd=folder, check=True)
    words = [sys.executable, "-m", "dibs", "status", "name:own-*", "--json"]
    found = json.loads(subprocess.run(words, env=environ, check=True, stdout=subprocess.PIPE).stdout)["jobs"]
    runs = [Run(job["id"], {}, 0.0, _moment(job["started_at"]), _moment(job["finished_at"])) for job in found]
    print(f"dibs.optuna.optimize, {len(runs)} trials: GPUs busy {busy(runs):.1%}", flush=True)


def replay_curves() -> None:
    """Print what the rules of `--early-stop` save on the recorded curves."""
    import curve_replay

    for word, recorded in (("", curve_replay.RECORDED), (" (held out)", curve_replay.HELD_OUT)):
        for rule, problem, saved, kept, worst in curve_replay.results(12, recorded):
            text = f"saves {min(saved):.0%} to {max(saved):.0%} of the steps (median {statistics.median(saved):.0%})"
            best = f"the best run was kept in {kept} of {len(saved)} orders"
            print(f"{rule}, {problem}{word}: {text}; {best}; what is left is at most {worst:.2%} worse")


def main() -> None:
    """Measure, or evaluate one point of a problem as a job."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--trials", type=int, default=60)
    reader.add_argument("--seeds", type=int, default=40)
    reader.add_argument("--first-seed", type=int, default=0)
    reader.add_argument("--runs", type=int, default=1)
    reader.add_argument("--takes", type=float, default=5.0, metavar="S", help="seconds of the shortest trial")
    reader.add_argument("--evaluate", metavar="PROBLEM")
    reader.add_argument("at", nargs="?")
    asked = reader.parse_args()
    if asked.evaluate:
        value, takes_s = noisy(asked.evaluate, json.loads(asked.at), int(os.environ["DIBS_INDEX"]), 0)
        # Loading Python is part of the cost.
        subprocess.run(["sleep", f"{asked.takes * takes_s:.3f}"], check=True)
        print(f"loss={value!r}")
        return
    root = Path(__file__).parents[1]
    sys.path.append(str(root / "tests" / "support"))
    replay_curves()
    for name in PROBLEMS if asked.seeds else ():
        compare(name, asked.trials, range(asked.first_seed, asked.first_seed + asked.seeds))
    with tempfile.TemporaryDirectory(prefix="dibs-search-") as folder:
        (Path(folder) / "leases").mkdir()
        own = {"DIBS_HOME": f"{folder}/home", "DIBS_LEASE_DIR": f"{folder}/leases", "DIBS_DEVICES": f"fake:{GPUS}"}
        environ = os.environ | own | {"PYTHONPATH": str(root)}
        try:
            for name in AS_JOBS if asked.runs else ():
                run(name, asked.trials, asked.runs, asked.takes, environ)
            run_study(Path(folder), environ)
        finally:
            subprocess.run([sys.executable, "-m", "dibs", "daemon", "stop"], env=environ, check=False)


if __name__ == "__main__":
    main()

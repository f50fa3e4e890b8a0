"""The story of the day, as plain values: which jobs ran on which GPU and when, what runs now, what waits and why.

Pure and seeded: the same seed tells the same day. Times are minutes before now, so they are negative. Who writes it
down is `history`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

GPUS = 8
#: The GPU that somebody uses without asking, and since when; and the one on which nothing new starts.
FOREIGN, FOREIGN_SINCE = 5, -52
DRAINED, DRAINED_SINCE = 4, -185
DRAIN_REASON = "fan is loud; looked at on Thursday"
DAY = 24 * 60

#: Minutes of the shortest job that a lane is filled with.
SHORTEST = 14

#: The sweep that is half through: how many points it has, and how many of them may run at once.
POINTS, AT_ONCE = 112, 2


@dataclass(frozen=True)
class Kind:
    """Jobs of one sort: what they are called, what they need, how busy they keep a GPU."""

    name: str
    project: str
    words: str
    minutes: int
    memory_gb: int
    utilization: int
    gpus: int = 1


KINDS = (
    Kind("vit-b16", "vision", "--model vit-b16 --bs 128", 74, 44, 93),
    Kind("diffusion", "vision", "--model diffusion-xl --bs 32", 96, 66, 97),
    Kind("nerf", "vision", "--model nerf --bs 16 --epochs 30", 41, 21, 84),
    Kind("asr", "speech", "--model conformer-l --bs 64", 58, 37, 78),
    Kind("llama-ft", "language", "--model llama-8b --bs 16 --lora 16", 122, 71, 98, gpus=2),
    Kind("rl-ppo", "control", "--model ppo --bs 32 --epochs 60", 33, 9, 46),
)
RUN = Kind("vit-lr", "vision", "", 17, 29, 88)
SEEDS = Kind("seeds", "speech", "", 24, 24, 81)


@dataclass(frozen=True)
class Work:
    """A job of the day. `lanes` is empty while it waits; `took` is None while it continues."""

    kind: Kind
    name: str
    command: str
    submitted: float
    lanes: tuple[int, ...] = ()
    began: float = 0.0
    took: float | None = None
    #: done, oom, nan, data, timeout, cancelled.
    end: str = "done"
    sweep: str | None = None
    params: dict[str, object] = field(default_factory=dict)
    #: How attempts before this one ended; each of them took a tenth of it.
    earlier: tuple[str, ...] = ()
    #: Of a job that waits: what for.
    after: str | None = None
    is_held: bool = False
    begin: float | None = None
    gpus: int = 1
    priority: int = 0
    limit_h: float | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Day:
    """All of it, in the order of submission."""

    past: tuple[Work, ...]
    running: tuple[Work, ...]
    waiting: tuple[Work, ...]


def make(seed: int = 1) -> Day:
    """Return the day of a seed."""
    chance = random.Random(seed)
    running = _running(chance)
    until = {lane: min((w.began for w in running if lane in w.lanes), default=0.0) - 1.5 for lane in range(GPUS)}
    until |= {DRAINED: DRAINED_SINCE + 12, FOREIGN: FOREIGN_SINCE - 4}
    past = _past(chance, until)
    ran = {work.params["index"] for work in (*past, *running) if work.sweep == RUN.name}
    rest = [p for p in _points(seed) if p["index"] not in ran]
    return Day(past, running, tuple(_waiting(rest)))


def _points(seed: int) -> list[dict[str, object]]:
    """Return the points of the large sweep."""
    chance = random.Random(seed + 17)
    return [
        {
            "index": index,
            "lr": float(f"{10 ** chance.uniform(-5, -1.6):.1e}"),
            "wd": float(f"{10 ** chance.uniform(-5, -1.05):.1e}"),
            "bs": chance.choice((16, 32, 64, 128)),
            "opt": chance.choice(("adamw", "adamw", "lion", "sgd")),
            "drop": round(chance.uniform(0, 0.5), 2),
        }
        for index in range(POINTS)
    ]


def _run(point: dict[str, object], submitted: float = -1290) -> Work:
    words = " ".join(f"--{key} {value}" for key, value in point.items() if key != "index")
    return Work(
        RUN, f"{RUN.name}-{point['index']}", f"python train.py {words}", submitted, sweep=RUN.name, params=point
    )


def _running(chance: random.Random) -> tuple[Work, ...]:
    """Return what runs now; they are placed in this order, on the free GPUs from the first on."""
    first, second = (_run(_points(1)[POINTS - 14 + n]) for n in range(2))
    by_name = {kind.name: kind for kind in KINDS}
    plain = [
        ("llama-ft", 201, (2, 3), -64, -88, 4.0),
        ("diffusion", 202, (6,), -57, -61, None),
        ("asr", 203, (7,), -23, -58, 2.0),
    ]
    return (
        replace(first, lanes=(0,), began=-9.0),
        replace(second, lanes=(1,), began=-4.0),
        *(
            replace(_single(by_name[name], n, chance), lanes=lanes, began=began, submitted=submitted, limit_h=limit)
            for name, n, lanes, began, submitted, limit in plain
        ),
    )


def _single(kind: Kind, number: int, chance: random.Random) -> Work:
    lr = float(f"{10 ** chance.uniform(-4, -2.6):.1e}")
    command = f"python train.py {kind.words} --lr {lr:g} --seed {number}"
    return Work(kind, f"{kind.name}-{number}", command, 0.0, gpus=kind.gpus)


def _past(chance: random.Random, until: dict[int, float]) -> tuple[Work, ...]:
    """Fill the lanes with work until each of them reaches its end."""
    free = {lane: -DAY + chance.uniform(2, 25) for lane in range(GPUS)}
    found: list[Work] = []
    for work in _offered(chance):
        lanes = sorted(sorted(free, key=lambda lane: (free[lane], lane))[: work.kind.gpus])
        began = max(free[lane] for lane in lanes)
        if work.sweep is not None:
            began = max(began, work.submitted + 0.1)
        elif chance.random() < 0.12:
            began += chance.uniform(5, 35)
        took = work.kind.minutes * chance.uniform(0.8, 1.25) * (1 if work.end == "done" else 0.3)
        if len(lanes) == work.kind.gpus and all(began + took < until[lane] for lane in lanes):
            submitted = work.submitted if work.sweep else began - chance.choice((0.1, 0.1, 6, 25, 48))
            found.append(replace(work, lanes=tuple(lanes), began=began, took=took, submitted=submitted))
            free |= dict.fromkeys(lanes, began + took + chance.uniform(0.1, 0.6))
        # Where the shortest would not fit any more the lane is full; others may have room for this kind.
        free = {lane: at for lane, at in free.items() if at + SHORTEST < until[lane]}
        if not free:
            break
    return tuple(sorted(found, key=lambda work: work.submitted))


def _offered(chance: random.Random) -> Iterator[Work]:
    """Yield work for the day: single jobs of all kinds, between them the runs of two sweeps."""
    runs = [_run(point) for point in _points(1)[: POINTS - 14]]
    seeds = [_seed_run(model, seed) for model in ("conformer-s", "conformer-m", "conformer-l") for seed in range(5)]
    ends = {
        3: "oom",
        16: "timeout",
        27: "cancelled",
        33: "nan",
        52: "data",
        74: "oom",
        91: "nan",
        98: "data",
        105: "oom",
    }
    for number in range(1, 600):
        kind = chance.choices(KINDS, weights=(4, 3, 4, 3, 2, 4))[0]
        earlier = ("oom",) if number % 19 == 5 else ()
        yield replace(_single(kind, number, chance), end=ends.get(number, "done"), earlier=earlier)
        for sweep in (seeds, runs) if number % 3 == 1 else (runs,):
            if sweep and number > 8:
                run = sweep.pop(0)
                yield replace(run, end="nan" if run.name in (f"{RUN.name}-8", f"{RUN.name}-61") else "done")


def _seed_run(model: str, seed: int) -> Work:
    command = f"python train.py --model {model} --seed {seed} --bs 32"
    point: dict[str, object] = {"model": model, "seed": seed}
    index = ("conformer-s", "conformer-m", "conformer-l").index(model) * 5 + seed
    return Work(SEEDS, f"seeds-{index}", command, -1200, sweep=SEEDS.name, params={"index": index, **point})


def _waiting(rest: list[dict[str, object]]) -> Iterator[Work]:
    """Yield what waits, each for a reason of its own."""
    for point in rest:
        yield _run(point)
    kind = {one.name: one for one in KINDS}
    chance = random.Random(5)
    yield replace(_single(kind["llama-ft"], 204, chance), submitted=-50, gpus=4, limit_h=6.0, tags=("paper",))
    yield replace(_single(kind["nerf"], 205, chance), submitted=-44, priority=-10)
    yield replace(_single(kind["diffusion"], 206, chance), submitted=-38, limit_h=3.0)
    yield replace(_single(kind["vit-b16"], 207, chance), submitted=-31)
    evaluation = Kind("eval", "language", "", 8, 20, 60)
    yield Work(evaluation, "eval-201", "python train.py --model llama-8b --epochs 3", -60, after="llama-ft-201")
    yield replace(_single(kind["rl-ppo"], 209, chance), submitted=-26, is_held=True)
    yield replace(_single(kind["asr"], 210, chance), submitted=-12, begin=240.0)
    yield replace(_single(kind["vit-b16"], 211, chance), submitted=-6, tags=("paper",))

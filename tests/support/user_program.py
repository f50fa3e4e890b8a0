"""A typed program of a user: `scripts/check` checks it with the types of `dibs`, a test runs it."""

from __future__ import annotations

from datetime import timedelta

import dibs


def main() -> list[str]:
    """Use everything once, as a user's program would."""
    job: dibs.Job = dibs.submit(["echo", "hello"], gpus=0, time=timedelta(hours=1), env={"SEED": 1}, tags=("a", "b"))
    state: str = job.wait(timeout=600, check=True)
    code: int | None = job.exit_code
    array: list[dibs.Job] = dibs.submit("true", array=range(2), gpus=0, after=[job, 1])
    loss: float | None = job.numbers.get("loss")
    names: list[str] = [gpu["name"] for gpu in dibs.gpus()]
    sweep = dibs.Sweep("echo {lr}", {"lr": [0.1, 0.01]}, gpus=0, name="typed", seed=1)
    counts: dict[str, int] = sweep.submit()
    sweep.wait()
    params: dict[str, object] = sweep.results()[0]["params"]
    with dibs.lease(gpus=1) as gpus:
        indices: list[int] = gpus.indices
    written: bool = dibs.report(loss=0.5)
    for each in array:
        each.wait()
    told = (state, code, loss, len(names), counts, params, len(indices), written, half(4))
    return [str(one) for one in told]


@dibs.lease(gpus=1)
def half(number: int) -> float:
    """Keep the types of the decorated function."""
    return number / 2


@dibs.on_stop
def save(seconds_left: float) -> None:
    """Take the seconds that are left."""


def wrong() -> None:
    """Make mistakes that the type checker must report; each of these is one."""
    dibs.submit("true", gpu=1)  # type: ignore[call-overload]
    dibs.submit("true", hold="yes")  # type: ignore[call-overload]
    dibs.job("12")  # type: ignore[arg-type]
    dibs.Sweep("true", {}, sample="ten")  # type: ignore[arg-type]
    half("4")  # type: ignore[arg-type]
    dibs.on_stop(len)  # type: ignore[type-var]
    dibs.report(loss="low")  # type: ignore[arg-type]

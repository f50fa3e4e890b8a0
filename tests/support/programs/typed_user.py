"""A user's program with every public name of dibs, for `mypy --strict`: it is checked, not run."""

from __future__ import annotations

import asyncio

import dibs
from dibs import errors


def train(lr: float, *, epochs: int = 1) -> float:
    dibs.report(loss=lr, step=epochs)
    dibs.on_stop(lambda: None)
    if dibs.is_stopping():
        return 0.0
    folder: str = str(dibs.checkpoint_dir())
    params: dict[str, object] = dict(dibs.params())
    return lr * len(folder) * len(params)


def jobs() -> None:
    job: dibs.Job = dibs.submit("python train.py", gpus=1, name="vit", time="2h", retries=2, tags=["a"])
    state: str = job.wait(timeout=10, check=True)
    code: int | None = job.exit_code
    many: dibs.JobList = dibs.submit_many(["true", "echo x"], gpus=0)
    ids: list[int] = many.cancel().ids + dibs.jobs("failed").retry().ids
    for each in many.as_finished(timeout=5):
        each.refresh()
    print(state, code, ids, dibs.job(12).id, dibs.gpus()[0]["index"], dibs.__version__)


async def waits() -> None:
    state: str = await dibs.submit("true")
    async for job in dibs.jobs("sweep:lr").as_finished():
        print(job.id, state)
    with dibs.Executor(gpus=1) as pool:
        value: float = await pool.submit(train, 0.1)
    print(value, await dibs.jobs("running"))


def calls() -> None:
    with dibs.Executor(gpus=1, max_jobs=2, sweep="lr") as pool:
        future = pool.submit(train, 0.1, epochs=3)
        value: float = future.result(timeout=5)
        values: list[float] = list(pool.map(train, [0.1, 0.2], progress=True, chunksize=1))
        found = [each.result() for each in pool.map_array(train, [0.1, 0.2])]
        named = pool.submit_call(train, [0.1], name="first", params={"lr": 0.1})
    print(value + sum(values) + sum(found), named.job.id, dibs.Executor.attach([1])[0].done())


def sweeps() -> None:
    sweep = dibs.Sweep(
        "python train.py --lr {lr}",
        {"lr": "loguniform(1e-5,1e-1)"},
        search="tpe",
        trials=60,
        minimize="loss",
        early_stop="median",
        gpus=1,
    )
    counts: dict[str, int] = sweep.submit()
    results: dibs.Results = dibs.results(sweep.name)
    best: float | None = sweep.best()["numbers"]["loss"]
    print(counts, results[0]["params"], best, results.to_frame())


def others() -> None:
    with dibs.lease(gpus=2) as gpus:
        print(gpus)
    dibs.register_joblib()
    print(dibs.optuna.optimize)
    try:
        dibs.job(99)
    except errors.NotFound as error:
        print(error.hint)


if __name__ == "__main__":
    jobs()
    calls()
    sweeps()
    others()
    asyncio.run(waits())

"""The command line that would submit a job again: parsed by the options of `dibs add`, it requests the same."""

from __future__ import annotations

import shlex
import signal
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

import build
from bench import Bench
from dibs.http_api.schemas import submission
from dibs.jobqueue import validation
from dibs.model.fields import JobSpec
from dibs.model.jobs import After, JobId, Request, Trouble, Warn, When
from dibs.submission import command_line, drafts, job_options, options
from dibs.submission.options import Option

TABLE: tuple[Option[object], ...] = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS)
#: Far in the future: a time that has passed is left out.
LATER = 4102444800000

text = some.text(alphabet=string.ascii_letters + string.digits + " -_.,:=+*'\"\\$é\n{}", min_size=1, max_size=12)
plain = text.filter(lambda word: word.strip() == word)
names = some.text(alphabet=string.ascii_letters + "_", min_size=1, max_size=6).filter(
    lambda name: (
        not name.upper().startswith(("DIBS", "CUDA"))
        and not any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH"))
    )
)
gpus = some.lists(some.sampled_from(["GPU-0", "GPU-1", "GPU-2", "GPU-3"]), min_size=1, unique=True).map(tuple)
seconds = some.integers(1, 10**8).map(float) | some.sampled_from([0.5, 1.25, 90.001])


@some.composite
def requests(draw: some.DrawFn) -> Request:
    """Generate any request for devices."""
    named = draw(some.just(()) | gpus)
    vram = draw(some.just(0) | some.integers(2**20, 2**45))
    return Request(
        gpus=draw(some.integers(1, len(named)) if named else some.integers(1 if vram else 0, 8)),
        gpu_ids=named,
        prefer=draw(some.just(()) | gpus),
        gpu_type=draw(some.none() | some.sampled_from(["a100", "*H100*", "rtx 4090"])),
        cpus=draw(some.integers(0, 64)),
        mem=draw(some.just(0) | some.integers(1, 2**50)),
        limit_s=draw(some.none() | seconds),
        vram=vram,
        ignore_foreign=draw(some.booleans()),
    )


@some.composite
def jobs(draw: some.DrawFn) -> JobSpec:
    """Generate any job that could have been typed."""
    request = draw(requests())
    argv = draw(some.none() | some.lists(text, max_size=3).map(lambda rest: ("true", *rest)))
    command = draw(
        some.sampled_from(["echo a && echo b", "python train.py --lr 0.1", "A=1 env | cat", "--help me", "A=1"])
    )
    retries = draw(some.integers(0, 5))
    troubles = draw(some.sets(some.sampled_from(Trouble) | some.integers(1, 255), min_size=1))
    needs = draw(some.sets(some.tuples(some.integers(1, 99), some.sampled_from(When)), max_size=3))
    order = list(job_options.AFTER_WHEN)
    limit_s = request.limit_s
    can_warn = limit_s is not None and limit_s > 2
    kept = submission.RETRIED_BY_DEFAULT
    return JobSpec(
        command=shlex.join(argv) if argv else command,
        argv=argv,
        cwd=draw(some.sampled_from(["/", "/tmp"])),
        request=request,
        name=draw(some.just("") | plain),
        project=draw(some.just("default") | plain),
        priority=draw(some.integers(-1000, 1000)),
        env=tuple(draw(some.dictionaries(names, text, max_size=2)).items()),
        output=draw(some.none() | some.sampled_from(["{id}.log", "/tmp/a b.log"])),
        stderr=draw(some.none() | some.just("err-{name}")),
        tags=tuple(draw(some.lists(plain, max_size=2, unique=True))),
        visible=draw(some.sampled_from([None, "uuid", "index"])),
        after=tuple(
            After(JobId(n), when) for n, when in sorted(needs, key=lambda need: (order.index(need[1]), need[0]))
        ),
        begin_at=draw(some.none() | some.integers(LATER, LATER * 2)),
        retries=retries,
        retry_on=tuple(troubles) if retries else kept,
        warn=draw(some.none() | some.just(Warn("USR1", 1.5))) if can_warn else None,
        wait_tree=draw(some.booleans()),
        metrics=draw(some.just(()) | some.just((("loss", "loss=([0-9.]+)"),))),
        strict_gpus=draw(some.booleans()),
        comment=draw(some.none() | some.sampled_from(["-x", "two\nlines"])),
        vram_enforce=draw(some.booleans()) if request.vram else False,
    )


def typed(line: str) -> validation.Submission:
    """Parse a line as a shell and `dibs add` would."""
    dibs, add, *words = shlex.split(line)
    assert (dibs, add) == ("dibs", "add")
    args = options.parse("add", TABLE, words, takes_command=True)
    (typed,) = submission.submissions(drafts.from_words(args, args.words, "add"))
    return typed


def asked_for(submission: validation.Submission) -> dict[str, object]:
    """Return everything a submission requests that an option can express."""
    own = submission.spec
    needs = {(int(part), when) for word, when in submission.after for part in word.split(",")}
    return {
        "gpus": (len(submission.gpu_ids) or 1) if submission.gpus is None else submission.gpus,
        "devices": (
            submission.gpu_ids,
            submission.prefer,
            submission.gpu_type,
            submission.vram,
            submission.ignore_foreign,
        ),
        "counted": (submission.cpus, submission.mem, submission.time_limit_s),
        "after": needs,
        "held": submission.is_held,
        "own": {
            name: getattr(own, name)
            for name in (
                *("cwd", "project", "priority", "env", "output", "stderr", "tags", "visible", "begin_at", "retries"),
                *("warn", "wait_tree", "metrics", "strict_gpus", "vram_enforce", "comment"),
            )
        },
        "retry_on": set(own.retry_on),
        "name": own.name,
    }


@settings(max_examples=100)
@given(job=jobs(), is_held=some.booleans())
@example(job=build.spec(cwd="/"), is_held=False)
def test_the_command_line_of_a_job_requests_the_same(job: JobSpec, is_held: bool) -> None:
    submission = typed(command_line.line(job, 0, is_held=is_held))
    request = job.request
    told = asked_for(submission)
    own = told.pop("own")
    assert isinstance(own, dict)
    assert own == {name: getattr(job, name) for name in own}
    assert told == {
        "gpus": request.gpus,
        "devices": (request.gpu_ids, request.prefer, request.gpu_type, request.vram, request.ignore_foreign),
        "counted": (request.cpus, request.mem, request.limit_s),
        "after": {(need.id, need.when) for need in job.after},
        "held": is_held,
        "retry_on": set(job.retry_on),
        "name": "" if command_line.default_name(job.command, job.argv) == job.name else job.name,
    }
    if job.argv is not None:
        assert submission.spec.argv == job.argv
    else:
        assert (submission.spec.command, submission.spec.argv) == (job.command, None)


def test_arguments_with_a_special_meaning_are_passed_through_the_shell() -> None:
    """The shell makes the same words of them and expands no variable."""
    submission = typed(command_line.line(build.spec("x", argv=("A=1", "b c"), cwd="/"), 0))
    assert (submission.spec.command, submission.spec.argv) == ("A=1 'b c'", None) or shlex.split(
        submission.spec.command
    ) == [
        "A=1",
        "b c",
    ]


def test_secrets_and_notify_commands_are_not_shown() -> None:
    line = command_line.line(build.spec(env=(("WANDB_API_KEY", "123"), ("LR", "1")), notify="curl chat/token"), 0)
    assert "WANDB_API_KEY=***" in line
    assert "LR=1" in line
    assert "123" not in line
    assert "curl" not in line


def test_a_begin_time_that_has_passed_is_left_out() -> None:
    job = build.spec(begin_at=LATER)
    assert "--begin" in command_line.line(job, LATER - 1)
    assert "--begin" not in command_line.line(job, LATER)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_job_details_and_a_dry_run_show_the_command_line(queue: Bench, number: signal.Signals) -> None:
    fields = {"gpus": 2, "time_limit_s": 5400, "warn": {"signal": number.name, "before_s": 120}, "project": "p 1"}
    expected = (
        f"dibs add --gpus 2 --time 1h30m --project 'p 1' --chdir {queue.folder} "
        f"--signal {number.name[3:]}@2m 'sleep 1 && true'"
    )
    job_id = queue.add("sleep 1 && true", hold=True, **fields)
    assert queue.job(job_id)["cli"] == expected
    body = {"command": "sleep 1 && true", "cwd": str(queue.folder), **fields}
    (row,) = queue.client.post("/v1/jobs?dry_run=1", body)["jobs"]
    assert row["cli"] == expected

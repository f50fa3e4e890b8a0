"""How GPUs are shown: the table, the history, the usage of a job, and hints about programs that choose GPUs."""

import contextlib
import dataclasses
from datetime import UTC, datetime

import pytest

from bench import Bench, wait_for
from dibs.cli.screen import Screen
from dibs.cli.verbs import gpus
from dibs.devices.usage import Use
from dibs.store.writer import Store
from terminal import Terminal

GIB = 2**30
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PIPED, TERMINAL = Screen(False, False, None), Screen(True, False, 200)


def gpu(**more):
    return {
        "index": 0, "id": "GPU-a", "name": "A100", "memory_total": 80 * GIB, "memory_used": 20 * GIB,
        "utilization": 50, "temperature": 61, "state": "free", "fault": None, "drained": None, "foreign": None,
        "settling": None, "power": None, "idle_since": None, "waiters": 0, "holders": [], "processes": [], **more,
    }  # fmt: skip


def row(view, **more):
    return gpus.table(view, [gpu(**more)], NOW).splitlines()[1].split()


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.001, 0), (0.02, 1), (0.5, 4), (1.0, 8)])
def test_on_a_terminal_memory_and_utilization_are_bars(share, full):
    cells = row(TERMINAL, memory_used=int(share * 80 * GIB), utilization=int(share * 100))
    assert cells[2] == "█" * full + "░" * (8 - full)
    assert "█" not in " ".join(row(PIPED))


def test_in_a_narrow_window_only_memory_has_a_bar():
    narrow = gpus.table(dataclasses.replace(TERMINAL, width=80), [gpu()], NOW)
    assert ("██░░░░ 20G/80G  50%" in narrow, narrow.count("█")) == (True, 2)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"state": "unhealthy", "fault": "the GPU is lost"}, "the GPU is lost"),
        ({"state": "foreign", "foreign": "used without a lease by bob's x (pid 7, 3G)"}, "bob's x (pid 7, 3G)"),
        ({"state": "leased", "settling": "3G of memory of its last job is not freed yet"}, "is not freed yet"),
        ({"idle_since": "2026-11-15T09:00:00.000Z"}, "idle for 3h"),
        ({"state": "leased", "waiters": 2}, "2 waiting"),
        ({"compute_mode": "exclusive-process"}, "one process at a time"),
        ({"state": "leased", "blocked": {"text": "blocked by eve", "fix": "`sudo kill 7`."}}, "by eve: `sudo kill 7`"),
    ],
)
def test_a_gpu_line_has_its_important_facts(more, told):
    assert told in gpus.table(TERMINAL, [gpu(**more)], NOW)


@pytest.fixture
def bench(nvml, tmp_path):
    nvml.is_now(f"gpu 0 uuid=GPU-a used={5 * GIB} util=80 temp=61")
    found = Bench(tmp_path, "", DIBS_FOREIGN_MEMORY="9G", **nvml.environ)
    yield found
    found.close()


def test_gpu_details_history_and_usage_of_a_job_are_in_the_json(bench):
    job_id = bench.add(["sleep", "1000"])
    bench.until(job_id, "started")
    (shown,) = wait_for(lambda: bench.client.get("/v1/gpus")["gpus"])
    more = {
        "power",
        "power_limit",
        "ecc_errors",
        "compute_mode",
        "pci",
        "numa",
        "parent",
        "vendor",
        "idle_since",
        "waiters",
    }
    assert more <= shown.keys()
    assert (shown["power"], shown["pci"], shown["state"]) == (30.0, "00000000:01:00.0", "leased")
    history = bench.client.get("/v1/gpus/history")
    assert history["columns"] == ["at", "memory", "utilization", "power", "temperature"]
    (found,) = history["gpus"]
    assert (found["id"], found["recent"][-1][1:]) == ("GPU-a", [5 * GIB, 80, 30.0, 61])
    (use,) = wait_for(lambda: bench.job(job_id)["use"])
    assert (use["peak_memory"], use["mean_utilization"]) == (5 * GIB, 80.0)
    assert "GPU-a: up to 5G, 80% busy" in bench.cli("show", str(job_id)).stdout
    bench.cancel(job_id, grace_s=0)
    bench.until(job_id)
    # It is kept after the job finished, and by the next daemon.
    wait_for(lambda: bench.client.get("/v1/gpus")["gpus"][0]["idle_since"])
    bench.stop()
    bench.start()
    assert bench.job(job_id)["use"][0]["peak_memory"] == 5 * GIB


@pytest.fixture
def pretend(tmp_path):
    found = Bench(tmp_path)
    yield found
    found.close()


def test_add_warns_about_a_program_that_chooses_its_gpus_itself(pretend, tmp_path):
    (tmp_path / "good.py").write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    (tmp_path / "bad.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n")
    warning = "sets CUDA_VISIBLE_DEVICES itself"
    assert warning not in pretend.cli("add", "--hold", "python3", "good.py").stderr
    told = pretend.cli("add", "--hold", "python3", "bad.py")
    assert (told.returncode, told.stderr.count(warning), "bad.py" in told.stderr) == (0, 1, True)
    # The fast path too, which leaves it to this one.
    assert warning in pretend.cli("add", "python3", "bad.py").stderr
    assert warning in pretend.cli("add", "--hold", "CUDA_VISIBLE_DEVICES=0 true; true").stderr


def test_on_a_terminal_add_gives_a_hint_about_the_memory_of_earlier_runs(pretend):
    """On the fast path, the full command line and `run`; piped output has no hint."""
    job_id = pretend.add("true", cwd=str(pretend.folder))
    device = pretend.until(job_id)["gpu_ids"][0]
    pretend.stop()
    used = Use(peak=5 * GIB, looks=9)
    with contextlib.closing(Store.open(pretend.home / "dibs.db")) as store, store.batch():
        store.keep_uses({(job_id, 1, device): used}, {}, 0)
    pretend.start()
    told = "dibs: earlier runs of this command used up to 5G of a GPU of 24G: with --vram 6G it would share one\n"
    low = "dibs: earlier runs of this command used up to 5G of a GPU, more than the 4G declared: try --vram 6G\n"
    for words, hint in (
        (("add", "true"), told),
        (("--debug", "add", "true"), told),
        (("run", "true"), told),
        (("add", "--vram", "4G", "true"), low),
        (("add", "--vram", "6G", "true"), ""),
        (("add", "-g0", "true"), ""),
        (("add", "true", "--other"), ""),
    ):
        with Terminal(pretend, *words, columns=200) as person:
            code, shown = person.end()
        assert (code, [line for line in shown.replace("\r", "").splitlines(True) if "earlier" in line]) == (
            0,
            [hint] if hint else [],
        )
        assert "earlier" not in pretend.cli(*words).stderr


def test_show_mentions_a_program_that_cannot_read_uuids(pretend):
    job_id = pretend.add("echo \"ValueError: invalid literal for int() with base 10: 'GPU-8f4a'\"; exit 1")
    pretend.until(job_id)
    assert "--visible index" in pretend.cli("show", str(job_id)).stdout

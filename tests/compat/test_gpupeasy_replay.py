"""Recorded answers of GPUPeasy's server and page, replayed: the same, letter by letter.

`<OUT>` is a folder, `<CWD>` that of the server. Where the old server was recorded while jobs ran for two seconds,
the queue is paused here, so that the state is certain.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urlencode

import pytest

from bench import Bench, wait_for
from dibs_compat.gpupeasy import servers
from peasy import FORM, Answer, Peasy, Server

CASES = {case["name"]: case for case in json.loads((Path(__file__).parents[1] / "data" / "gpupeasy.json").read_text())}
#: Ended jobs in the recorded lists that have no case of their own.
UNLISTED = {"nf": ["no_such_cmd_xyz"], "str": "ls", "str2": "ls -l"}
#: Cases that are not a single request, with the test for each. All others are replayed, also new ones.
ASIDE = {
    "startserver_defaults": "test_the_original_start_scripts_work",
    "duplicate_and_empty_gpu_ids": "test_duplicate_and_empty_gpu_ids_behave_as_recorded",
}


@pytest.fixture(scope="module")
def peasy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peasy]:
    """A server on two GPUs that gets every request that the old one got."""
    bench = Bench(tmp_path_factory.mktemp("replay"))
    own = Peasy(bench, "0", "1")
    yield own
    own.close()
    bench.close()


def filled(peasy: Peasy, value: Any) -> Any:
    """Return a case with the folders of this run, and jobs that take less than two seconds."""
    text = json.dumps(value).replace("<OUT>", str(peasy.out)).replace("<CWD>", str(peasy.bench.folder))
    return json.loads(text.replace("sleep 2", "sleep 0"))


@pytest.fixture(scope="module")
def answers(peasy: Peasy) -> dict[str, Answer]:
    """All answers, by the name of the case, in the order of the recording."""
    core, page, found = peasy.core, peasy.page, {}

    def ask(name: str) -> None:
        case = filled(peasy, CASES[name])
        method, _, path = case["invocation"].removeprefix("GET gui ").partition(" ")
        if case["invocation"].startswith("GET"):
            path = case["invocation"].split()[-1]
            found[name] = (page if " gui " in case["invocation"] else core).ask("GET", path)
        elif " gui " in case["invocation"]:
            found[name] = page.ask("POST", path.split()[1], urlencode(case["input"]), FORM)
        else:
            body = case["input"] if isinstance(case["input"], str) else json.dumps(case["input"])
            assert method == "POST"
            found[name] = core.ask("POST", "/addnewjob", body, "application/json")

    for name in ("json_null", "missing_jobCommand", "ok", "outfile_exists", "fail"):
        ask(name)
    for name, command in UNLISTED.items():
        peasy.add(name, command)
    for number in range(1, 6):
        core.until(number)
    for name in CASES:
        if name.startswith("after__") or name in ("gui_loadlog", "gui_loadlog_negative"):
            ask(name)
    ask("gui_GET__scheduledjobs")
    peasy.bench.client.post("/v1/queue", {"paused": True})
    ask("q0")
    for name in ("q1", "q2"):
        peasy.add(name, filled(peasy, CASES["q0"]["input"]["job"]["jobCommand"]))
    ask("q3")
    ask("queued__jobinfo_9")
    peasy.bench.client.post("/v1/queue", {"paused": False})
    for number in range(6, 10):
        core.until(number)
    (peasy.out / "g0").touch()
    for name in CASES:
        if name not in found and name not in ASIDE:
            ask(name)
    return found


@pytest.mark.parametrize("name", [name for name in CASES if name not in ASIDE])
def test_every_answer_equals_the_recorded_one(peasy: Peasy, answers: dict[str, Answer], name: str) -> None:
    expected, seen = filled(peasy, CASES[name]["expected"]), answers[name]
    assert seen.status == expected.get("status", 200)
    if expected.get("location"):
        # Other escapes, same meaning.
        assert seen.location == unquote_plus(expected["location"])
        return
    body = expected["body"]
    if isinstance(body, dict):
        value = seen.json
        if isinstance(value.get("value"), list):
            # Jobs on two GPUs end in any order.
            value["value"].sort(key=lambda job: job["jobID"])
        assert value == body
    elif body.startswith("{"):
        assert seen.text == body
    else:
        # The layout is ours; the content is not.
        assert seen.headers["Content-Type"].startswith("text/html")
        assert "No jobs scheduled" in seen.text or "No jobs scheduled" not in body


def test_jobs_get_the_recorded_environment_and_write_the_recorded_output(
    peasy: Peasy, answers: dict[str, Answer]
) -> None:
    assert answers
    assert (peasy.out / "env").read_text() == f"CVD=0\nerr\n{peasy.bench.folder}\n"
    assert (peasy.out / "fail").read_text() == "x\n"
    assert {(peasy.out / name).read_text() for name in ("q0", "q1", "q2", "q3")} == {"0\n", "1\n"}


def test_of_a_batch_with_one_output_file_only_the_first_job_ran(peasy: Peasy, answers: dict[str, Answer]) -> None:
    assert answers
    found = wait_for(lambda: (peasy.out / "same").read_text())
    assert found == "a\n"


def test_every_case_is_replayed(answers: dict[str, Answer]) -> None:
    assert {*answers, *ASIDE} == CASES.keys()
    assert all(callable(globals()[name]) for name in ASIDE.values())


def test_default_ports_are_those_of_the_readme_and_can_be_changed() -> None:
    expected = CASES["startserver_defaults"]["expected"]
    assert (servers.CORE_PORT, servers.PAGE_PORT) == (8888, 4004)
    for text in (expected["server"], expected["gui"]):
        host, _, port = text.rpartition(":")
        said: list[str] = []
        # For everybody then, for the owner now.
        assert servers.settled(servers.Address(host, int(port)), said.append) == servers.Address("127.0.0.1", int(port))
        assert f"listening on 127.0.0.1 instead of {host}" in said[0]


def test_the_original_start_scripts_work(tmp_path: Path) -> None:
    """With its GPU list, its wake-up interval and a folder for the log; folder and ports are the test's own."""
    expected = CASES["startserver_defaults"]["expected"]
    bench = Bench(tmp_path, devices=f"fake:{len(expected['gpus'])}")
    logs, out = tmp_path / "logs", tmp_path / "out"
    out.mkdir()
    server = tmp_path / "startserver.py"
    server.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        f"GPUPeasyServer({expected['gpus']!r}, logdir={str(logs) + '/'!r}, debug=False, wakesec={expected['wakesec']})"
        ".run('0.0.0.0', 0)\n"
    )
    try:
        bench.start()
        core = Server(bench, None, sys.executable, str(server))
        gui = tmp_path / "startgui.py"
        gui.write_text(
            "from gpupeasy.webapp.peasyWebGUI import GPUPeasyWebGUI\n"
            f"GPUPeasyWebGUI('0.0.0.0', {core.port}).run('0.0.0.0', 0)\n"
        )
        page = Server(bench, None, sys.executable, str(gui))
        assert core.get("/availabledevices")["value"] == expected["gpus"]
        number = core.add("job", out / "job", ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"'])
        assert core.until(number)["returnCode"] == 0
        assert (out / "job").read_text().strip() in expected["gpus"]
        log = logs / expected["log_file"]
        told = wait_for(log.read_text, lambda text: "exited" in text)
        assert f"Scheduling <{number}, job> on gpu  0\n" in told
        assert f"[Success ]:  Process <{number}, job> exited with return code: 0\n" in told
        assert page.ask("GET", f"/jobinfo/{number}").status == 200
        for each in (page, core):
            assert each.stop() == 0
    finally:
        bench.close()


def test_duplicate_and_empty_gpu_ids_behave_as_recorded(tmp_path: Path) -> None:
    expected = CASES["duplicate_and_empty_gpu_ids"]["expected"]["cuda_visible_devices_in_start_order"]
    bench = Bench(tmp_path, devices="fake:2x24G")
    peasy = Peasy(bench, *CASES["duplicate_and_empty_gpu_ids"]["input"]["gpuList"])
    try:
        gate = tmp_path / "gate"
        # None of them can end before all three run.
        command = ["sh", "-c", f"echo \"$CUDA_VISIBLE_DEVICES\"; until [ -e '{gate}' ]; do sleep 0.02; done"]
        numbers = [peasy.add(f"d{number}", command) for number in range(3)]
        for number in numbers:
            peasy.core.until(number, "Running")
        seen = [wait_for((peasy.out / f"d{number}").read_text).strip() for number in range(3)]
        assert seen == expected
        assert [job["gpu"] for job in peasy.core.get("/deviceutilization")["value"]] == expected
        page = peasy.page.ask("GET", "/deviceutilization")
        assert page.status == 200
        gate.touch()
        for number in numbers:
            assert peasy.core.until(number)["returnCode"] == 0
    finally:
        peasy.close()
        bench.close()

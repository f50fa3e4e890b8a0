"""GPUPeasy's server and page with real jobs: the functions its users asked for, and the bugs that must not return."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import forking
from bench import PATIENCE_S, Bench, wait_for
from payloads import MARKUP, PATHS, Seen
from peasy import Peasy, Server

#: Runs until the file that is its last argument exists.
UNTIL = ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; until [ -e "$0" ]; do sleep 0.02; done']


@pytest.fixture(scope="module")
def peasy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peasy]:
    """A server on two GPUs, for all tests that leave it idle."""
    bench = Bench(tmp_path_factory.mktemp("peasy"), devices="fake:4x24G")
    own = Peasy(bench, "0", "1")
    yield own
    own.close()
    bench.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Peasy]]:
    """Return a function that starts a server with a GPU list; all are stopped."""
    bench = Bench(tmp_path, devices="fake:4x24G")
    made: list[Peasy] = []

    def serve(*gpus: str, port: int = 0) -> Peasy:
        made.append(Peasy(bench, *gpus, port=port))
        return made[-1]

    yield serve
    for own in made:
        own.close()
    bench.close()


def gate(peasy: Peasy) -> Path:
    """Return a file that does not exist yet."""
    return peasy.bench.folder / f"gate-{os.urandom(4).hex()}"


def dibs_id(peasy: Peasy, number: int) -> int:
    """Return the id in dibs of a job of GPUPeasy."""
    (job,) = peasy.bench.jobs(f"tag:gpupeasy:{peasy.core.port}:{number}")
    return int(job["id"])


def begun(peasy: Peasy, *numbers: int) -> None:
    """Wait until jobs run: jobs that are starting are reported as `Running` too."""
    for number in numbers:
        peasy.core.until(number, "Running")
        peasy.bench.until(dibs_id(peasy, number), "started")


# -- jobs --


def test_jobs_are_jobs_of_dibs_and_can_be_cancelled_there(peasy: Peasy) -> None:
    number = peasy.add("cancelled", [*UNTIL, str(gate(peasy))])
    begun(peasy, number)
    peasy.bench.cancel(dibs_id(peasy, number), grace_s=0)
    assert peasy.core.until(number)["returnCode"] in (-9, -15)


def test_a_waiting_job_is_cancelled_too_and_the_rest_continues(peasy: Peasy) -> None:
    opened = gate(peasy)
    running = [peasy.add(f"busy{number}", [*UNTIL, str(opened)]) for number in range(2)]
    waiting, last = peasy.add("waits", ["true"]), peasy.add("last", ["true"])
    assert [job["jobID"] for job in peasy.core.get("/scheduledjobs")["value"]][-2:] == [waiting, last]
    peasy.bench.cancel(dibs_id(peasy, waiting))
    assert peasy.core.until(waiting)["returnCode"] == -1
    opened.touch()
    assert [peasy.core.until(number)["returnCode"] for number in (*running, last)] == [0, 0, 0]


def test_jobs_start_in_order_on_the_gpus_of_the_list(peasy: Peasy) -> None:
    numbers = [peasy.add(f"fifo{number}", ["true"]) for number in range(6)]
    for number in numbers:
        peasy.core.until(number)
    jobs = [peasy.bench.job(dibs_id(peasy, number)) for number in numbers]
    assert {index for job in jobs for index in job["gpu_indices"]} <= {0, 1}
    log = (peasy.bench.home / "gpupeasy" / "logs.out").read_text()
    dealt = [line.split("<")[1].split(",")[0] for line in log.splitlines() if "Scheduling <" in line and "fifo" in line]
    assert dealt == [str(number) for number in numbers]


def test_a_job_killed_from_outside_is_noticed(peasy: Peasy) -> None:
    number = peasy.add("killed", [*UNTIL, str(gate(peasy))])
    begun(peasy, number)
    pid = wait_for(lambda: peasy.bench.job(dibs_id(peasy, number))["pid"])
    os.kill(pid, signal.SIGKILL)
    assert peasy.core.until(number)["returnCode"] == -9


def test_a_failing_job_stops_no_other(peasy: Peasy) -> None:
    peasy.bench.client.post("/v1/queue", {"paused": True})
    folder = peasy.out / "gone"
    folder.mkdir()
    number = peasy.core.add("number", peasy.out / "number", ["sleep", 0])
    homeless = peasy.core.add("homeless", folder / "out", ["true"])
    (folder / "out").unlink()
    folder.rmdir()
    missing = peasy.add("missing", ["no-such-program-xyz"])
    refused = peasy.core.post(
        "/addnewjob", {"job": {"jobName": "odd", "outFile": str(peasy.out / "odd"), "jobCommand": ["a", None]}}
    )
    assert refused.json["status"] == "failed"
    peasy.bench.client.post("/v1/queue", {"paused": False})
    after = peasy.add("after", ["true"])
    assert peasy.core.until(number)["returnCode"] == 0
    assert peasy.core.until(missing)["returnCode"] == -1
    peasy.core.until(homeless)
    assert peasy.core.until(after)["returnCode"] == 0


def test_output_files_are_created_at_once_and_emptied_when_a_job_is_rerun(peasy: Peasy) -> None:
    peasy.bench.client.post("/v1/queue", {"paused": True})
    path = peasy.out / "mine"
    number = peasy.core.add("mine", path, ["sh", "-c", "echo out; echo err >&2"])
    assert path.read_text() == ""
    peasy.bench.client.post("/v1/queue", {"paused": False})
    peasy.core.until(number)
    assert path.read_text() == "out\nerr\n"
    assert "successMessage" in act(peasy, number, "rerun")
    peasy.bench.until(dibs_id(peasy, number))
    assert path.read_text() == "out\nerr\n"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("{out}/no/such/folder", "Could not open output file: {out}/no/such/folder"),
        ("{out}", "Output file already exists: {out}"),
        ("/dev/null", "Output file already exists: /dev/null"),
        ("{out}/a\x00b", "Could not open output file: {out}/a\x00b"),
    ],
)
def test_an_invalid_output_file_is_refused_and_nothing_is_queued(peasy: Peasy, output: str, told: str) -> None:
    before = len(peasy.bench.jobs())
    job = {"jobName": "x", "outFile": output.format(out=peasy.out), "jobCommand": ["ls"]}
    answer = peasy.core.post("/addnewjob", {"job": job})
    assert answer.json == {"status": "failed", "message": told.format(out=peasy.out)}
    assert len(peasy.bench.jobs()) == before


def test_a_refused_job_leaves_no_file_behind(peasy: Peasy) -> None:
    path = peasy.out / "long"
    job = {"jobName": "x" * 2000, "outFile": str(path), "jobCommand": ["ls"]}
    answer = peasy.core.post("/addnewjob", {"job": job})
    assert answer.json["message"].startswith("Could not add new job: x")
    assert not path.exists()


def test_braces_in_a_path_are_literal(peasy: Peasy) -> None:
    path = peasy.out / "{id}-{{x}}"
    number = peasy.core.add("braces", path, ["echo", "1"])
    assert peasy.core.until(number)["outFile"] == str(path)
    assert path.read_text() == "1\n"


@pytest.mark.parametrize(("kind", "body", "status"), [("text/plain", "{}", 415), ("application/json", "{", 400)])
def test_only_json_is_accepted(peasy: Peasy, kind: str, body: str, status: int) -> None:
    answer = peasy.core.ask("POST", "/addnewjob", body, kind)
    assert (answer.status, answer.json) == (status, {"status": "failed", "message": "No JSON data was found"})


def test_groups_reordered_groups_and_unknown_gpu_ids_work(served: Callable[..., Peasy]) -> None:
    peasy = served("0,1", "3,2", "x7")
    opened = gate(peasy)
    numbers = [peasy.add(f"g{number}", [*UNTIL, str(opened)]) for number in range(3)]
    for number in numbers:
        peasy.core.until(number, "Running")
    assert [wait_for((peasy.out / f"g{number}").read_text) for number in range(3)] == ["0,1\n", "3,2\n", "x7\n"]
    assert peasy.bench.free_devices() == []
    listed = peasy.core.get("/deviceutilization")["value"]
    assert [(job["jobName"], job["gpu"]) for job in listed] == [("g0", "0,1"), ("g1", "3,2"), ("g2", "x7")]
    assert {job["jobCommand"] for job in listed} == {" ".join([*UNTIL, str(opened)])}
    # An unknown id is leased by its text, machine-wide.
    assert (peasy.bench.leases / ".dibs-lease-x7").exists()
    opened.touch()
    assert [peasy.core.until(number)["returnCode"] for number in numbers] == [0, 0, 0]
    missing = [peasy.add(f"m{number}", ["no-such-program-xyz"]) for number in range(3)]
    assert [peasy.core.until(number)["returnCode"] for number in missing] == [-1, -1, -1]


# -- restarts of the server --


def own_port() -> int:
    """Return a free port outside the ephemeral range, so that it is still free when it is used."""
    for port in range(10_000 + os.getpid() % 20_000, 32_000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def test_nothing_is_lost_when_the_server_is_killed(served: Callable[..., Peasy]) -> None:
    peasy = served("0", port=own_port())
    opened = gate(peasy)
    first = peasy.add("runs", [*UNTIL, str(opened)])
    second = peasy.add("waits", ["echo", "later"])
    begun(peasy, first)
    peasy.core.process.kill()
    peasy.core.process.wait()
    opened.touch()
    peasy.bench.until(1)
    again = served("0", port=peasy.core.port)
    assert again.core.until(second)["returnCode"] == 0
    assert again.core.info(first)["status"] == "Succeeded"
    assert (again.out / "waits").read_text() == "later\n"
    assert again.add("third", ["true"]) == 3


def waited(peasy: Peasy, opened: Path, count: int) -> list[int]:
    """Add jobs that run until a file exists, and wait until the first has started; return their numbers."""
    numbers = [peasy.add(f"w{number}", [*UNTIL, str(opened)]) for number in range(count)]
    begun(peasy, numbers[0])
    return numbers


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_waiting_jobs_continue_when_their_server_is_gone(served: Callable[..., Peasy], number: int) -> None:
    """On the GPUs of its list, and no others, though there are four."""
    peasy = served("1", "3", port=own_port())
    opened = gate(peasy)
    numbers = waited(peasy, opened, 5)
    assert [peasy.bench.job(dibs_id(peasy, each))["state"] for each in numbers[2:]] == ["queued"] * 3
    peasy.core.stop(number)
    if number == signal.SIGKILL:
        peasy.bench.kill()
        peasy.bench.start()
    opened.touch()
    for job in (peasy.bench.until(each) for each in range(1, 6)):
        assert job["state"] == "done"
        assert job["gpu_indices"] in ([1], [3])
        assert (peasy.out / job["name"]).read_text() == f"{job['gpu_indices'][0]}\n"
    again = served("1", "3", port=peasy.core.port)
    assert sorted(job["jobID"] for job in again.core.get("/successfuljobs")["value"]) == numbers


def test_if_dibs_cannot_choose_the_gpu_the_reason_says_what_to_do(served: Callable[..., Peasy]) -> None:
    peasy = served("0,1", "", port=own_port())
    opened = gate(peasy)
    _, _, third = waited(peasy, opened, 3)
    peasy.core.stop(signal.SIGKILL)
    shown = peasy.bench.cli("why", str(dibs_id(peasy, third))).stdout
    assert f"gpupeasy-server --port {peasy.core.port}" in shown
    assert f"dibs unhold {dibs_id(peasy, third)}" in shown
    opened.touch()
    again = served("0,1", "", port=peasy.core.port)
    assert again.core.until(third)["returnCode"] == 0


def test_a_job_held_by_a_user_stays_held_across_restarts_and_lists(served: Callable[..., Peasy]) -> None:
    peasy = served("0", port=own_port())
    opened = gate(peasy)
    _, kept, last = waited(peasy, opened, 3)
    held = dibs_id(peasy, kept)
    peasy.bench.client.post(f"/v1/jobs/{held}/hold", {})
    opened.touch()
    for gpus in (("0,1", "2"), ("2",), ("FAKE-3",)):
        peasy.core.stop(signal.SIGKILL)
        peasy = served(*gpus, port=peasy.core.port)
        assert peasy.core.until(last)["returnCode"] == 0
        # A later job overtakes it: the server has checked all of them.
        assert peasy.core.until(peasy.add(f"after{gpus[0]}", ["true"]))["returnCode"] == 0
        assert peasy.bench.job(held)["state"] == "held"
    assert "successMessage" in act(peasy, kept, "unhold")
    assert peasy.core.until(kept)["returnCode"] == 0
    assert (peasy.out / "w1").read_text() == "FAKE-3\n"


def test_servers_killed_between_two_lists_lose_no_job_and_run_none_twice(
    served: Callable[..., Peasy],
) -> None:
    """They die while they take jobs back from dibs, release or assign them; the last one survives."""
    lists = [("0,1", "2"), ("0", "1"), ("x7", "0"), ("1",), ("0,1", "2"), ("0", "1")]
    peasy = served("0", port=own_port())
    opened = gate(peasy)
    numbers = waited(peasy, opened, 6)
    ran = peasy.bench.folder / "ran"
    numbers += [peasy.add(f"r{each}", ["sh", "-c", f"echo {each} >> '{ran}'"]) for each in range(12)]
    for gpus in lists:
        peasy.core.stop(signal.SIGKILL)
        peasy = served(*gpus, port=peasy.core.port)
        if gpus == ("x7", "0"):
            opened.touch()
    assert [peasy.core.until(number)["returnCode"] for number in numbers] == [0] * 18
    assert sorted(ran.read_text().split(), key=int) == [str(each) for each in range(12)]
    assert all(peasy.bench.job(dibs_id(peasy, number))["attempt"] == 1 for number in numbers)


def test_one_ctrl_c_ends_the_server_and_not_the_jobs(served: Callable[..., Peasy]) -> None:
    peasy = served("0")
    opened = gate(peasy)
    number = peasy.add("runs", [*UNTIL, str(opened)])
    begun(peasy, number)
    page = peasy.page
    assert peasy.core.stop(signal.SIGINT) == 0
    answer = page.ask("GET", "/")
    assert answer.status == 200
    assert "Could not reach the scheduler server" in answer.text
    assert "Could not reach" in page.form("/batchaddjobs", jobList="a;;/nowhere/a;;ls").messages["errorMessage"]
    assert page.stop(signal.SIGINT) == 0
    opened.touch()
    assert peasy.bench.until(1)["state"] == "done"


def test_the_daemon_may_be_killed_while_jobs_wait(served: Callable[..., Peasy]) -> None:
    peasy = served("0")
    opened = gate(peasy)
    first, second = peasy.add("runs", [*UNTIL, str(opened)]), peasy.add("waits", ["true"])
    begun(peasy, first)
    peasy.bench.kill()
    peasy.bench.start()
    opened.touch()
    assert peasy.core.until(second)["returnCode"] == 0


def test_a_users_start_script_works(served: Callable[..., Peasy], tmp_path: Path) -> None:
    peasy = served("0")
    script = tmp_path / "startserver.py"
    script.write_text(
        "from gpupeasy.core.server import GPUPeasyServer\n"
        "server = GPUPeasyServer(['0', '1'], logdir='logs', debug=False, wakesec=5)\n"
        "server.run(host='0.0.0.0', port=0)\n"
    )
    gui = tmp_path / "startgui.py"
    gui.write_text(
        "from gpupeasy.webapp.peasyWebGUI import GPUPeasyWebGUI\n"
        f"GPUPeasyWebGUI('0.0.0.0', {peasy.core.port}, debug=False).run('0.0.0.0', 0)\n"
    )
    for path in (script, gui):
        process = subprocess.Popen(
            [sys.executable, str(path)], env=peasy.bench.environ, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("GPUPeasy ")
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "listening on 127.0.0.1 instead of 0.0.0.0" in told


# -- the page --


def act(peasy: Peasy, number: int, verb: str, value: str = "") -> dict[str, str]:
    """Press a button of a job; return the messages of the page."""
    answer = peasy.page.form(f"/jobs/{number}/{verb}", value=value)
    assert answer.status == 302
    return dict(answer.messages)


def test_every_button_works(peasy: Peasy) -> None:
    opened = gate(peasy)
    busy = [peasy.add(f"b{number}", [*UNTIL, str(opened)]) for number in range(2)]
    begun(peasy, *busy)
    low, high, kept = (peasy.add(name, ["true"]) for name in ("low", "high", "kept"))
    assert "successMessage" in act(peasy, high, "priority", "10")
    assert "successMessage" in act(peasy, kept, "hold")
    assert [job["jobID"] for job in peasy.core.get("/scheduledjobs")["value"]] == [high, low, kept]
    assert "successMessage" in act(peasy, busy[0], "pause")
    assert peasy.bench.job(dibs_id(peasy, busy[0]))["state"] == "paused"
    assert "successMessage" in act(peasy, busy[0], "resume")
    assert peasy.bench.job(dibs_id(peasy, busy[0]))["state"] == "running"
    pid = peasy.bench.job(dibs_id(peasy, busy[1]))["pid"]
    wait_for(lambda: peasy.page.ask("GET", "/deviceutilization").text, lambda seen: f"<td>{pid}</td>" in seen)
    assert "successMessage" in act(peasy, busy[1], "cancel")
    assert peasy.core.until(busy[1])["status"] == "Failed"
    assert peasy.core.until(low)["returnCode"] == 0
    starts = [peasy.bench.job(dibs_id(peasy, number))["started_at"] for number in (high, low)]
    assert starts[0] <= starts[1]
    opened.touch()
    peasy.core.until(busy[0])
    assert peasy.core.info(kept)["status"] == "Scheduled"
    assert "successMessage" in act(peasy, kept, "unhold")
    assert peasy.core.until(kept)["returnCode"] == 0
    assert "successMessage" in act(peasy, busy[1], "rerun")
    assert peasy.core.until(busy[1], "Succeeded")["returnCode"] == 0
    assert (peasy.out / "b1").read_text() in ("0\n", "1\n")


@pytest.mark.parametrize(("verb", "value"), [("priority", "x"), ("priority", ""), ("explode", ""), ("unhold", "")])
def test_an_impossible_action_is_an_error(peasy: Peasy, verb: str, value: str) -> None:
    number = peasy.add(f"n{verb}{value}", ["true"])
    peasy.core.until(number)
    assert "errorMessage" in act(peasy, number, verb, value)


def test_an_unknown_job_is_an_error(peasy: Peasy) -> None:
    assert "errorMessage" in act(peasy, 999, "cancel")
    assert peasy.page.form("/jobs/1x/cancel").status == 404


def test_the_queue_is_paused_and_resumed(peasy: Peasy) -> None:
    peasy.page.form("/queue", paused="1")
    assert peasy.bench.client.get("/v1/queue")["paused"] is True
    assert "Paused:" in peasy.page.ask("GET", "/").text
    peasy.page.form("/queue", paused="0")
    assert peasy.bench.client.get("/v1/queue")["paused"] is False


def test_the_gpu_list_can_be_changed_without_a_restart(served: Callable[..., Peasy]) -> None:
    peasy = served("0")
    opened = gate(peasy)
    first, second = (peasy.add(name, [*UNTIL, str(opened)]) for name in ("one", "two"))
    begun(peasy, first)
    assert "successMessage" in peasy.page.form("/devices", devices="2\r\n3").messages
    assert peasy.core.get("/availabledevices")["value"] == ["2", "3"]
    peasy.core.until(second, "Running")
    assert [job["gpu"] for job in peasy.core.get("/deviceutilization")["value"]] == ["0", "2"]
    opened.touch()
    for number in (first, second):
        peasy.core.until(number)
    assert (peasy.out / "two").read_text() == "2\n"


def test_the_form_adds_a_job_without_a_shell(peasy: Peasy) -> None:
    said = peasy.page.form(
        "/addnewjob", jobName="form", outFile=str(peasy.out / "form"), jobCommand="echo 'a  b' $HOME ; ls"
    )
    assert said.messages == {"successMessage": "Job added successfully"}
    number = max(
        job["jobID"] for name in ("scheduled", "successful") for job in peasy.core.get(f"/{name}jobs")["value"]
    )
    peasy.core.until(number)
    assert (peasy.out / "form").read_text() == "a  b $HOME ; ls\n"
    broken = peasy.page.form("/addnewjob", jobName="q", outFile=str(peasy.out / "q"), jobCommand="echo 'x")
    assert broken.messages == {"errorMessage": "Error in job: q: No closing quotation"}
    assert not (peasy.out / "q").exists()


def test_an_unbalanced_quote_adds_no_job_of_a_batch(peasy: Peasy) -> None:
    said = peasy.page.form("/batchaddjobs", jobList=f"a;;{peasy.out}/qa;;ls;;;b;;{peasy.out}/qb;;echo 'x")
    assert said.messages == {
        "errorMessage": "There were 1 errors. \n\nError in job: b: No closing quotation\n\n",
    }
    assert not (peasy.out / "qa").exists()


def test_an_error_in_a_tested_list_is_readable(peasy: Peasy) -> None:
    said = peasy.page.form("/testCommandParser", jobCommand=f"A;;{peasy.out};;ls;;;B;;{peasy.out}/b;;ls 'x y'").messages
    told = f"Error in job: A: Output file already exists or common to multiple jobs: {peasy.out}\n\n"
    assert (said["errorCount"], said["errorMessage"]) == (1, told)
    assert said["jobList"] == [{"Job Name": "B", "Job File": f"{peasy.out}/b", "Job Command": ["ls", "x y"]}]


def test_testing_a_list_without_errors_shows_no_message(peasy: Peasy) -> None:
    said = peasy.page.form("/testCommandParser", jobCommand=f"B;;{peasy.out}/b;;ls").messages
    read = [{"Job Name": "B", "Job File": f"{peasy.out}/b", "Job Command": ["ls"]}]
    assert said == {"status": "successful", "jobList": read, "errorCount": 0}


@pytest.mark.parametrize("text", ["", "  ;;; ;;;"])
def test_testing_an_empty_list_is_refused(peasy: Peasy, text: str) -> None:
    said = peasy.page.form("/testCommandParser", jobCommand=text).messages
    assert said == {"status": "failed", "commandList": [], "errorMessage": "Command string cannot be emtpy"}


def test_only_output_files_of_jobs_can_be_read(peasy: Peasy) -> None:
    number = peasy.add("env", ["seq", "5"])
    peasy.core.until(number)
    path = peasy.out / "env"

    def read(name: str, last: str = "2") -> object:
        return peasy.page.form("/loadlogfile", fileName=name, lastN=last).json

    assert read(str(path)) == {"status": "successful", "value": "4\n5\n"}
    assert read(str(path), "0") == {"status": "successful", "value": ""}
    assert read(str(path), "x") == {"status": "failed", "value": "Expected a number of lines"}
    (peasy.out / "secret").write_text("secret")
    for text in (*PATHS, "{out}/secret"):
        name = text.format(out=peasy.out, home=peasy.bench.home)
        assert read(name) == {"status": "failed", "value": f"File not found: {name}"}
        assert peasy.core.ask("GET", f"/dibs/log?fileName={name.encode().hex()}&lastN=1").json["status"] == "failed"
    # A file that a job put in place of its output is up to the job, but reading never blocks.
    path.unlink()
    os.mkfifo(path)
    assert read(str(path)) == {"status": "failed", "value": f"File not found: {path}"}
    path.unlink()


def test_payloads_are_shown_as_text_everywhere(peasy: Peasy) -> None:
    """Each is in a name, an argument and the output of a job, and in a message in the address."""
    some = ["|".join(MARKUP[at : at + 13]) for at in range(0, len(MARKUP), 13)]
    numbers = [peasy.core.add(text, peasy.out / f"payload{at}", ["printf", "%s", text]) for at, text in enumerate(some)]
    for number in numbers:
        assert peasy.core.until(number)["returnCode"] == 0
    paths = ["/successfuljobs", *(f"/jobinfo/{number}" for number in numbers)]
    for text in some:
        said = {"errorMessage": text, "infoMessage": text, "successMessage": text, "errorCount": text}
        paths += [f"{path}?{urlencode({'messages': json.dumps(said)})}" for path in ("/", "/batchaddjobs")]
    shown = "".join(peasy.page.ask("GET", path).text for path in paths)
    elements = Seen(shown).elements
    assert {tag for tag, _ in elements} & {
        "img",
        "svg",
        "iframe",
        "b",
        "i",
        "base",
        "style",
        "object",
        "video",
    } == set()
    assert [names for tag, names in elements if tag == "script" and names != ["src", "defer"]] == []
    assert [name for _, names in elements for name in names if name.startswith("on")] == []
    assert shown.count("&lt;script&gt;alert(1)") > len(MARKUP)


# -- admission --


def test_both_servers_refuse_a_page_of_another_site(peasy: Peasy) -> None:
    job = json.dumps({"job": {"jobName": "x", "outFile": str(peasy.out / "evil"), "jobCommand": ["ls"]}})
    for server in (peasy.core, peasy.page):
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Host": f"evil.example:{server.port}"},
            {"Sec_Fetch_Site": "cross-site"},
        ):
            answer = server.ask("POST", "/addnewjob", job, "application/json", **headers)
            assert answer.status == 403
            assert server.ask("GET", "/", **headers).status == 403
    assert not (peasy.out / "evil").exists()
    own = peasy.page.ask("GET", "/", Origin=f"http://127.0.0.1:{peasy.page.port}", Sec_Fetch_Site="same-origin")
    assert own.status == 200


def test_every_answer_of_both_servers_has_the_security_headers(peasy: Peasy) -> None:
    for server, path in ((peasy.page, "/"), (peasy.page, "/static/peasy.js"), (peasy.page, "/nothing"),
                         (peasy.core, "/scheduledjobs"), (peasy.core, "/nothing")):  # fmt: skip
        headers = server.ask("GET", path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    for name in ("..%2fpages.py", "%2e%2e/pages.py", "peasy.css.py"):
        assert peasy.page.ask("GET", f"/static/{name}").status == 404


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_of_this_machine_is_refused(peasy: Peasy) -> None:
    ask = (
        'exec 3<>"/dev/tcp/127.0.0.1/$0"; '
        'printf "%s /addnewjob HTTP/1.1\\r\\nHost: 127.0.0.1:$0\\r\\nConnection: close\\r\\n\\r\\n" "$1" >&3; cat <&3'
    )
    for server in (peasy.core, peasy.page):
        for method in ("GET", "POST"):
            done = subprocess.run(
                ["bash", "-c", ask, str(server.port), method], user=65534, group=65534, extra_groups=[],
                capture_output=True, text=True, cwd="/",
            )  # fmt: skip
            assert done.stdout.startswith("HTTP/1.1 403"), done
            assert done.stdout.endswith("refused: this server belongs to somebody else\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_the_page_sends_nothing_to_the_server_of_another_user(bench: Bench, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    os.seteuid(65534)
    try:
        stranger = socket.create_server((host, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    finally:
        os.seteuid(0)
    with stranger:
        stranger.setblocking(False)
        port = stranger.getsockname()[1]
        page = Server(bench, "gpupeasy-gui", "--port", "0", "--core-port", str(port))
        told = (
            f"Could not reach the scheduler server: port {port} belongs to another user (uid 65534); nothing was sent"
        )
        added = page.form("/addnewjob", jobName="a", outFile=str(bench.folder / "a"), jobCommand="ls")
        assert added.messages == {"errorMessage": told}
        for path in ("/", "/scheduledjobs", "/jobinfo/1", "/jobinfo/1/now"):
            assert told in page.ask("GET", path).text
        with pytest.raises(BlockingIOError):
            stranger.accept()
        assert page.stop() == 0


def test_an_address_reachable_by_others_is_refused_or_warned_about(served: Callable[..., Peasy]) -> None:
    peasy = served("0")
    refused = forking.run("gpupeasy-server", ["--host", "192.0.2.1", "--port", "0"], peasy.bench.environ, peasy.out)
    assert refused.returncode == 2
    assert "can be reached by others" in refused.stderr
    server = Server(
        peasy.bench, "gpupeasy-server", "--host", "0.0.0.0", "--port", "0", "--insecure-bind", "--gpus", "0"
    )
    assert "a shell for everyone" in server.text()
    for port in (peasy.core.port, 99999):
        taken = forking.run("gpupeasy-server", ["--port", str(port)], peasy.bench.environ, peasy.out)
        assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
        assert "cannot listen on 127.0.0.1" in taken.stderr
    assert server.ask("GET", "/availabledevices", Host="gpu.example:1").json["value"] == ["0"]
    assert server.stop() == 0

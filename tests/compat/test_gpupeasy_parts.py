"""The deciding parts of GPUPeasy's servers: GPU lists, old state names, admission, and rendering."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from dibs.errors import UserError
from dibs_compat.gpupeasy import admission, core, entries, gpu_lists, pages, servers
from dibs_compat.gpupeasy.dispatcher import Dispatcher, Refusal
from dibs_compat.gpupeasy.entries import Entry
from dibs_compat.gpupeasy.gpu_lists import Gpu
from dibs_compat.gpupeasy.logbook import Logbook
from payloads import MARKUP, PATHS, Seen

GIB = 2**30
GPUS = [{"index": number, "id": f"GPU-{number}aa", "memory_total": 24 * GIB} for number in range(3)]


@pytest.mark.parametrize(
    ("texts", "text", "gpu"),
    [
        (["0", "1"], "1", Gpu("1", ("GPU-1aa",))),
        (["0,1"], "0,1", Gpu("0,1", ("GPU-0aa", "GPU-1aa"))),
        (["1,0"], "1,0", Gpu("1,0", ("GPU-0aa", "GPU-1aa"), is_written=True)),
        ([""], "", Gpu("")),
        (["GPU-1aa"], "GPU-1aa", Gpu("GPU-1aa", ("GPU-1aa",), visible="uuid")),
        (["GPU-1"], "GPU-1", Gpu("GPU-1", ("GPU-1aa",), visible="uuid", is_written=True)),
        (["GPU-"], "GPU-", Gpu("GPU-", visible="uuid", is_written=True, keys=("GPU-",))),
        (["0", "0"], "0", Gpu("0", ("GPU-0aa",), vram=12 * GIB)),
        (["0", "0,1", "0"], "0,1", Gpu("0,1", ("GPU-0aa", "GPU-1aa"), vram=8 * GIB)),
        (["7"], "7", Gpu("7", is_written=True, keys=("7",))),
        (["7", "7"], "7", Gpu("7", is_written=True)),
        (["0,7"], "0,7", Gpu("0,7", ("GPU-0aa",), is_written=True, keys=("7",))),
    ],
)
def test_an_entry_of_the_gpu_list_is_parsed(texts: list[str], text: str, gpu: Gpu) -> None:
    assert gpu_lists.read(texts, GPUS)[text] == gpu


@pytest.mark.parametrize(
    ("texts", "gpu"),
    [
        (["0", "1"], Gpu("", ("GPU-0aa", "GPU-1aa"), is_choice=True)),
        # In the order of the list, which is the order in which they are used.
        (["2", "0"], Gpu("", ("GPU-2aa", "GPU-0aa"), is_choice=True)),
        (["1"], Gpu("1", ("GPU-1aa",))),
        (["0,1"], Gpu("0,1", ("GPU-0aa", "GPU-1aa"))),
        (["0,1", "0,1"], Gpu("0,1", ("GPU-0aa", "GPU-1aa"), vram=12 * GIB)),
        (["0", "0"], Gpu("0", ("GPU-0aa",), vram=12 * GIB)),
        (["0", "1", "0", "1"], Gpu("", ("GPU-0aa", "GPU-1aa"), vram=12 * GIB, is_choice=True)),
        (["GPU-1aa", "GPU-0aa"], Gpu("", ("GPU-1aa", "GPU-0aa"), visible="uuid", is_choice=True)),
        ([], None),
        ([""], None),
        (["0", ""], None),
        (["0,1", "2"], None),
        (["0", "0", "1"], None),
        (["0", "GPU-1aa"], None),
        (["1,0"], None),
        (["GPU-1"], None),
        (["0", "7"], None),
    ],
)
def test_dibs_chooses_if_any_entry_of_the_list_would_do(texts: list[str], gpu: Gpu | None) -> None:
    assert gpu_lists.common(texts, GPUS) == gpu


def test_the_request_is_for_one_of_several_gpus_or_for_a_whole_group() -> None:
    one, group = gpu_lists.common(["2", "0"], GPUS), gpu_lists.common(["0,1"], GPUS)
    assert one is not None
    assert group is not None
    assert (one.request["gpus"], one.request["gpu_ids"]) == (1, ["GPU-2aa", "GPU-0aa"])
    assert one.request["prefer"] == one.request["gpu_ids"]
    assert (group.request["gpus"], group.request["gpu_ids"]) == (2, ["GPU-0aa", "GPU-1aa"])


def test_without_gpus_every_entry_is_leased_by_its_text() -> None:
    found = gpu_lists.read(["0", "1"], [])
    assert found["0"] == Gpu("0", is_written=True, keys=("0",))


def test_a_gpu_of_unknown_memory_is_not_shared() -> None:
    found = gpu_lists.read(["0", "0"], [{"index": 0, "id": "GPU-0aa", "memory_total": None}])
    assert found["0"].vram == 0


def test_a_freed_gpu_moves_to_the_end_of_the_list() -> None:
    free = gpu_lists.freed(["0", "1", "2"], ["0", "1", "2"], [])
    free = gpu_lists.freed(free[2:], ["0", "1", "2"], ["0", "1"])
    assert free == ["2"]
    free = gpu_lists.freed(free, ["0", "1", "2"], ["0"])
    assert free == ["2", "1"]
    assert gpu_lists.freed(free, ["0", "1", "2"], []) == ["2", "1", "0"]


TEXTS = st.lists(st.sampled_from(["", "0", "1", "0,1"]), max_size=6)


@given(TEXTS, TEXTS, TEXTS)
def test_free_gpus_are_the_list_without_the_busy_ones(free: list[str], texts: list[str], busy: list[str]) -> None:
    found = gpu_lists.freed(free, texts, busy)
    for text in {*texts, *busy, *free}:
        assert found.count(text) == max(0, texts.count(text) - busy.count(text))


def entry(state: str = "done", **more: Any) -> Entry:
    """Return a job of GPUPeasy."""
    return Entry(1, 12, "a", ("echo", "1 2"), "/out/a", state, **more)


@pytest.mark.parametrize(
    ("job", "status", "code"),
    [
        (entry("held"), "Scheduled", None),
        (entry("queued"), "Scheduled", None),
        (entry("starting"), "Running", None),
        (entry("running"), "Running", None),
        (entry("paused"), "Running", None),
        (entry("stopping"), "Running", None),
        (entry("done", exit_code=0), "Succeeded", 0),
        (entry("failed", exit_code=4, cause="exit"), "Failed", 4),
        (entry("failed", exit_code=127, cause="start"), "Failed", -1),
        (entry("failed", exit_code=127, cause="exit"), "Failed", 127),
        (entry("failed", exit_code=127, cause="exit", is_wrapped=True), "Failed", -1),
        (entry("failed", signal=9, cause="signal"), "Failed", -9),
        (entry("cancelled"), "Failed", -1),
        (entry("cancelled", signal=15), "Failed", -15),
        (entry("timeout", signal=15), "Failed", -15),
        (entry("lost"), "Failed", -1),
    ],
)
def test_states_are_translated_to_the_old_names(job: Entry, status: str, code: int | None) -> None:
    assert (job.status, job.return_code) == (status, code)


def test_the_page_distinguishes_waiting_from_held_jobs() -> None:
    ours, kept = entry("held", tags=(entries.held(8888),)), entry("held")
    assert [entries.whole(job)["state"] for job in (ours, kept, entry("queued"))] == ["waiting", "held", "queued"]
    assert (ours.is_next, kept.is_next) == (True, False)


def test_a_command_is_shown_without_quotes_and_a_string_letter_by_letter() -> None:
    assert entry().command == "echo 1 2"
    assert Entry(1, 1, "a", ("ls -l",), "/o", "done", (entries.LETTERS,)).command == "l s   - l"


def test_a_wrapped_command_can_be_unwrapped() -> None:
    words = entries.wrapped(("a", "--", "b"), "7", ("7",))
    assert entries.unwrapped(words) == ("a", "--", "b")
    assert entries.unwrapped(["a", "--", "b"]) == ("a", "--", "b")


@pytest.mark.parametrize("tags", [[], ["gpupeasy:1:x"], ["gpupeasy:2:1"], ["gpupeasy:1:"], ["x"], ["gpupeasy:1:-4"]])
def test_a_job_of_another_server_is_ignored(tags: list[str]) -> None:
    assert entries.read({"tags": tags, "argv": ["x"]}, 1) is None


JOB = {"outFile": "/o", "jobName": "n", "jobCommand": ["ls"]}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "No JSON data was found"),
        ({}, "Key 'job' not found"),
        ([], "Key 'job' not found"),
        (3, "Key 'job' not found"),
        ({"job": {}}, "Key 'outFile' not found"),
        ({"job": None}, "Key 'outFile' not found"),
        ({"job": {"outFile": "/o"}}, "Key 'jobName' not found"),
        ({"job": {"outFile": "/o", "jobName": "n"}}, "Key 'jobCommand' not found"),
        ({"job": JOB | {"jobCommand": []}}, "No jobs were submitted"),
        ({"job": JOB | {"jobCommand": ""}}, "No jobs were submitted"),
        ({"job": JOB | {"jobName": ""}}, "No job name was provided"),
        ({"job": JOB | {"outFile": ""}}, "Output file not specified"),
        ({"job": JOB | {"outFile": 3}}, "Could not add new job: n. Check logs for details"),
        ({"job": JOB | {"jobName": {"a": 1}}}, "Could not add new job: {'a': 1}. Check logs for details"),
    ],
)
def test_missing_keys_are_reported_in_the_old_words(body: Any, told: str) -> None:
    with pytest.raises(Refusal) as refused:
        core._job(body)
    assert str(refused.value) == told


@pytest.mark.parametrize("command", [{"a": 1}, [["ls"]], ["ls", None], 5, True])
def test_an_invalid_command_is_refused(command: Any) -> None:
    with pytest.raises(Refusal, match="Could not add new job: n"):
        core._argv("n", command)


def test_numbers_in_a_command_keep_their_spelling() -> None:
    assert core._argv("n", ["sleep", 5, 0.5]) == ["sleep", "5", "0.5"]


OWNER, OTHER = 1000, 1001
FETCHED = ("Sec-Fetch-Mode", "Sec-Fetch-Dest")
HOSTS = ("localhost:4004", "127.0.0.1:4004", "[::1]:4004", "localhost", "LOCALHOST:1")
STRANGE_HOSTS = (
    "evil.example", "evil.example:4004", "127.0.0.1.evil.example", "localhost.evil.example:4004", "", "0.0.0.0:4004",
    "192.168.0.7:4004", "127.0.0.1@evil.example", "localhost:123456",
)  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "TRACE", "PATCH"])
@pytest.mark.parametrize("site", [None, "same-origin", "none", "same-site", "cross-site", "other"])
@pytest.mark.parametrize("is_opened", [False, True])
def test_exactly_the_allowed_requests_are_admitted(method: str, site: str | None, is_opened: bool) -> None:
    for uid in (OWNER, 0, OTHER, None):
        for host in (*HOSTS, *STRANGE_HOSTS, None):
            for origin in (
                None,
                "null",
                f"http://{host}",
                f"https://{host}",
                "http://evil.example",
                "http://localhost:9",
            ):
                how = admission.OPENING if is_opened else ["cors", "empty"]
                asked = {"Host": host, "Origin": origin, "Sec-Fetch-Site": site} | dict(zip(FETCHED, how, strict=True))
                is_known = uid in (OWNER, 0) and host in HOSTS and method in ("GET", "HEAD", "POST")
                is_same = origin in (None, f"http://{host}")
                is_ours = site in (None, "same-origin", "none") or (is_opened and method in ("GET", "HEAD"))
                allowed = is_known and is_same and is_ours
                headers = CIMultiDict({name: value for name, value in asked.items() if value is not None})
                told = admission.refusal(uid, method, headers, OWNER, is_open=False)
                assert (told is None) == allowed, (uid, headers)


@pytest.mark.parametrize(
    "more", [("Host", "localhost:1"), ("Origin", "http://localhost:1"), ("Sec-Fetch-Site", "cross-site")]
)
def test_duplicate_headers_are_refused(more: tuple[str, str]) -> None:
    once = [("Host", "localhost:1"), ("Origin", "http://localhost:1"), ("Sec-Fetch-Site", "same-origin")]
    assert admission.refusal(OWNER, "GET", CIMultiDict(once), OWNER, is_open=False) is None
    assert admission.refusal(OWNER, "GET", CIMultiDict([*once, more]), OWNER, is_open=False)


def test_an_open_port_still_refuses_pages_of_other_sites() -> None:
    headers = CIMultiDict({"Host": "gpu.example:8888"})
    assert admission.refusal(None, "POST", headers, OWNER, is_open=True) is None
    headers["Origin"] = "http://evil.example"
    assert admission.refusal(None, "POST", headers, OWNER, is_open=True)


def test_an_address_reachable_by_others_needs_an_explicit_option() -> None:
    said: list[str] = []
    for host in ("127.0.0.1", "localhost", "::1"):
        assert servers.settled(servers.Address(host, 1), said.append).host == host
    assert said == []
    for host in ("0.0.0.0", "", "::"):
        assert servers.settled(servers.Address(host, 1), said.append) == servers.Address("127.0.0.1", 1)
    assert len(said) == 3
    assert all("insecure" in text for text in said)
    with pytest.raises(UserError, match="can be reached by others"):
        servers.settled(servers.Address("192.168.0.7", 1), said.append)
    assert servers.settled(servers.Address("0.0.0.0", 1, is_open=True), said.append).host == "0.0.0.0"
    assert "a shell for everyone" in said[-1]


def drawn(text: str) -> list[str]:
    """Return every page, with this text in every external value."""
    job: dict[str, Any] = {
        "jobid": 1, "dibsID": 12, "jobName": text, "jobCommand": text, "outFile": text, "status": text, "state": text,
        "returnCode": text, "gpu": text, "pid": text, "priority": 0, "cause": text,
    }  # fmt: skip
    jobs = {"total": 3, "jobs": [job, job | {"state": "waiting"}, job | {"state": "running"}]}
    state = {"devices": [text, text], "paused": True, **dict.fromkeys([key for key, *_ in pages.LISTS.values()], jobs)}
    said = dict.fromkeys(pages.MESSAGES, text)
    tested = said | {"errorCount": text, "jobList": [{"jobName": text, "jobCommand": [text]}, text]}
    return [
        pages.index(said, state),
        *(pages.listed(state, address) for address in pages.LISTS),
        pages.batch(tested, text),
        pages.job(said, text, job, text),
        pages.job(said, text, None, text),
        pages.job_now(job, text),
        pages.document("GPUPeasy", pages.messages({"errorMessage": text})),
    ]


PLAIN = [Seen(page).elements for page in drawn("plain")]


@pytest.mark.parametrize("text", [*MARKUP, *PATHS])
def test_every_external_value_in_a_page_is_text(text: str) -> None:
    """The elements and attributes of every page are the same, whatever the names, commands, outputs and files are."""
    for plain, page in zip(PLAIN, drawn(text), strict=True):
        seen = Seen(page)
        assert seen.elements == plain
        assert text.replace("\r", "\n") in seen.text or text in seen.values


def test_no_page_has_an_inline_script() -> None:
    for elements in PLAIN:
        assert not [name for _, names in elements for name in names if name.startswith("on") or name == "style"]
        assert all(tag != "style" for tag, _ in elements)
        assert all(names == ["src", "defer"] for tag, names in elements if tag == "script")


class SlowQueue:
    """A queue with one job, which finishes while an answer about it is on its way; meanwhile another reader asks."""

    def __init__(self) -> None:
        self.state = "queued"
        self.reader: threading.Thread | None = None
        #: Called once while an answer that is outdated by then is on its way.
        self.overtake: Any = None

    def post(self, path: str, body: Any) -> Any:
        if path == "/v1/jobs":
            self.job = {**body["defaults"], **body["jobs"][0]}
            return {"ids": [1]}
        return {"unchanged": []}

    def get(self, path: str, query: Any = ()) -> Any:
        shown: dict[str, Any] = dict.fromkeys(("cause", "signal", "pid", "finished_at"))
        shown |= {"id": 1, "state": self.state, "exit_code": 0, "priority": 0, "gpu_ids": [], "gpu_indices": []}
        shown |= {name: self.job[name] for name in ("argv", "name", "tags")} | {"log": self.job["output"]}
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            self.state = "done"
            self.reader = threading.Thread(target=overtake)
            self.reader.start()
            # It waits for us, unless readers can overtake each other: then it ends at once.
            self.reader.join(0.5)
        return {"jobs": [shown]}


def test_a_late_answer_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    """Otherwise a finished job would be shown as running for ever: no further change is reported."""
    queue = SlowQueue()
    dispatcher = Dispatcher(queue, 8888, ["0"], Logbook(tmp_path))  # type: ignore[arg-type]
    number = dispatcher.add("a", str(tmp_path / "out"), ["true"])
    queue.overtake = lambda: dispatcher.act(number, "cancel")
    dispatcher.act(number, "cancel")
    assert queue.reader is not None
    queue.reader.join()
    dispatcher.close()
    found = dispatcher.find(number)
    assert found is not None
    assert found.status == entries.SUCCEEDED

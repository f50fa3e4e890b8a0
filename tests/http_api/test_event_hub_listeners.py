"""One task serves all listeners: its queries do not depend on their number, and without listeners it is idle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import build
from dibs.daemon.service import Events
from dibs.http_api.event_hub import Stream
from dibs.http_api.event_stream import Channel, gather_s
from dibs.jobqueue.outlook import QueueOutlook
from dibs.model.devices import Inventory
from dibs.scheduling.views import Policy, View
from dibs.store.writer import Store
from dibs.system.locks import Folder
from event_listener import Ear, Heard

PATIENCE_S = 60.0


class SmallDaemon:
    """As much of a daemon as a channel needs, with a real store; it counts the queries."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.asked = 0
        self.events = Events(asyncio.get_running_loop())
        self.stopping = asyncio.Event()
        self.watcher = SimpleNamespace(note_viewer=lambda: None)
        self.devices = SimpleNamespace(idle_since={})
        self.inventory = Inventory()
        self.identity = SimpleNamespace(user="ada")
        self.lease_folder = Folder(str(folder))

    async def ask(self, question: Callable[[Store], Any]) -> Any:
        self.asked += 1
        return question(self.store)

    def starts_trouble(self, reader: Store) -> None:
        """Refuse nothing."""

    def outlook(self, reader: Store) -> QueueOutlook:
        view = View(reader.head(6), reader.active_devices())
        return QueueOutlook(view, Policy(4), self.inventory, reader, 30.0)

    def submit(self, count: int = 1) -> None:
        with self.store.batch():
            self.store.submit([build.spec()] * count, build.NOW)
        self.events.publish()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


async def listen(channel: Channel, since: int | None = None) -> Ear:
    ear = Ear()
    stream = Stream(ear, None, lambda: ear.ends.append(True))
    ear.data = b"%x\r\n%s\r\n" % (len(first := await channel.listen(stream, since)), first)
    return ear


async def until(is_so: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everything waits, so that a busy machine changes nothing."""

    passed_s = 0.0

    def time(self) -> float:
        """Return the simulated seconds."""
        return self.passed_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.passed_s = max(self.passed_s, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def queries(folder: Path, listeners: int) -> int:
    """Return the queries of three writes in a row, each of which every listener receives before the next."""

    async def run() -> int:
        house = SmallDaemon(store, folder)
        channel = Channel(house)  # type: ignore[arg-type]
        ears = [await listen(channel) for _ in range(listeners)]
        before = house.asked
        for number in range(1, 4):
            house.submit()
            await until(lambda number=number: all(len(ear.numbers()) == number for ear in ears))
        asked = house.asked - before
        await channel.close()
        assert all(ear.ends == [True] for ear in ears)
        return asked

    with (
        contextlib.closing(Store.open(folder / f"{listeners}.db")) as store,
        asyncio.Runner(loop_factory=SimulatedLoop) as runner,
    ):
        return runner.run(run())


def test_many_listeners_need_no_more_queries_than_one(tmp_path: Path) -> None:
    """One for each write, and one every 2 s for the GPUs."""
    assert queries(tmp_path, 1) == 3 + 1
    assert queries(tmp_path, 300) == 3 + 1


def test_without_listeners_nothing_is_queried(store: Store, tmp_path: Path) -> None:
    async def run() -> None:
        house = SmallDaemon(store, tmp_path)
        channel = Channel(house)  # type: ignore[arg-type]
        house.submit()
        assert (house.asked, channel.hub.is_awake) == (0, False)
        ear = await listen(channel)
        ear.is_gone = True
        house.submit()
        await until(lambda: not channel.hub.is_awake)
        asked = house.asked
        house.submit(3)
        await asyncio.sleep(0)
        assert house.asked == asked
        again = await listen(channel, since=2)
        assert again.numbers() == [3, 4, 5]
        await channel.close()

    asyncio.run(run())


def test_an_unreadable_store_ends_the_streams_and_the_next_listener_retries(store: Store, tmp_path: Path) -> None:
    async def run() -> None:
        house = SmallDaemon(store, tmp_path)
        channel = Channel(house)  # type: ignore[arg-type]
        ear = await listen(channel)

        async def refuse(question: Callable[[Store], Any]) -> Any:
            raise OSError(5, "Input/output error")

        working, house.ask = house.ask, refuse  # type: ignore[method-assign]
        house.submit()
        await until(lambda: ear.ends == [True])
        house.ask = working  # type: ignore[method-assign]
        assert (await listen(channel, since=0)).numbers() == [1]
        await channel.close()

    asyncio.run(run())


def test_the_first_message_has_an_event_number_only_if_no_event_is_missing(store: Store, tmp_path: Path) -> None:
    async def run() -> list[Heard]:
        house = SmallDaemon(store, tmp_path)
        channel = Channel(house)  # type: ignore[arg-type]
        house.submit(2)
        ears = [await listen(channel), await listen(channel, since=1), await listen(channel, since=9)]
        await channel.close()
        return [ear.heard()[0] for ear in ears] + [ears[2].heard()[1]]

    first, second, third, reset = asyncio.run(run())
    assert [first.number, second.number, third.number, reset.number] == [2, None, None, 2]
    assert {first.event, second.event, third.event} == {"hello"}
    assert reset.event == "reset"


@pytest.mark.parametrize(("listeners", "writes_a_second"), [(1, 10), (100, 10), (200, 5), (400, 2.5)])
def test_with_more_listeners_events_are_collected_longer(listeners: int, writes_a_second: float) -> None:
    """However many there are, at most a thousand writes are made per second."""
    assert 1 / gather_s(listeners) == pytest.approx(writes_a_second)
    assert listeners / gather_s(listeners) <= 1000

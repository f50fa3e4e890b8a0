"""What the queue thread does for jobs outside the database, where the system may refuse."""

from __future__ import annotations

import contextlib
import errno

import pytest

import build
from desk import PLACED, Desk
from dibs.engines.local import Local
from dibs.jobqueue.effects import EffectRunner
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.turns import StartRunner


class UnreadableStarts(Local):
    """An engine that starts nothing, and has no descriptor left to read the files of a start."""

    def start(self, *wanted, is_loan=False):
        pass

    def running(self, job):
        raise OSError(errno.EMFILE, "Too many open files")


def test_starts_that_could_not_be_read_are_checked_again(tmp_path):
    desk = Desk(tmp_path, build.inventory(4))
    engine = UnreadableStarts(*(getattr(desk.engine, name) for name in Local.__slots__))
    desk.engine = engine
    posted = []
    with contextlib.closing(desk.store), contextlib.closing(Reactor()) as waits:
        job = desk.store.job(desk.job(PLACED))
        effects = EffectRunner(desk.store, engine, waits, posted.append, lambda job, refusal: None)
        effects.act(desk.new_turn(), StartRunner(job))
        waits.wait()
        with pytest.raises(OSError, match="Too many open files"):
            posted.pop().run(desk.new_turn())
        # Ends the wait if no check is to come.
        waits.later(5.0, list)
        waits.wait()
        assert posted

"""How objects are sent to another process: by import name, by value, or not at all."""

import functools
import math
import pickletools
import sys
import threading
import types
from dataclasses import dataclass

import pytest

import dibs
from dibs.python_api import call_worker, pickling


@dataclass
class Point:
    x: int


def double(x):
    return 2 * x


def of_main(name="helper"):
    """Return a function as a script would define it."""
    module = {"__name__": "__main__"}
    exec(f"def {name}(x): return x + 1", module)
    return module[name]


@pytest.mark.parametrize(
    "value", [1, "a", None, [1, {"b": (2.5,)}], Point(3), double, math.sqrt, functools.partial(double, 4), Point]
)
def test_importable_objects_are_sent_by_name(value):
    body = pickling.dump(value, "it")
    back = pickling.loads(body)
    assert back == value or back() == value()
    assert b"cloudpickle" not in body


def test_objects_sent_by_name_contain_only_the_name():
    """The other side imports them."""
    found = {arg for _, arg, _ in pickletools.genops(pickling.dump(double, "it")) if isinstance(arg, str)}
    assert found == {__name__, "double"}


@pytest.mark.parametrize("value", [lambda x: x + 1, of_main(), functools.partial(of_main())])
def test_other_objects_are_sent_by_value(value):
    assert pickling.loads(pickling.dump(value, "it"))(1) == 2


def test_a_closure_is_sent_with_its_variables():
    factor = 3
    assert pickling.loads(pickling.dump(lambda x: x * factor, "it"))(2) == 6


def test_an_object_of_main_is_sent_by_value_with_its_class():
    main = {"__name__": "__main__"}
    exec("class Thing:\n    def get(self): return self.value", main)
    thing = main["Thing"]()
    thing.value = 5
    assert pickling.loads(pickling.dump([thing], "it"))[0].get() == 5


@pytest.mark.parametrize("value", [of_main(), lambda: 0])
def test_without_cloudpickle_the_error_names_the_fix(monkeypatch, value):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickling.Unpicklable, match=r"the call f\(\) cannot be sent by.*Install cloudpickle"):
        pickling.dump(value, "the call f()")


def test_a_replaced_function_is_not_sent_by_the_name_of_the_new_one(monkeypatch):
    other = types.FunctionType(double.__code__, globals(), "double")
    other.__module__, other.__qualname__ = __name__, "double"
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickling.Unpicklable, match="not the same object"):
        pickling.dump(other, "it")


class Refuses:
    def __reduce__(self):
        raise RuntimeError("not me")


@pytest.mark.parametrize("make", [threading.Lock, Refuses, lambda: (x for x in ())])
def test_an_object_that_cannot_be_pickled_is_one_clear_error(make):
    with pytest.raises(pickling.Unpicklable, match="the result cannot be pickled"):
        pickling.dump(make(), "the result")


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("dibs.answering", "run_all", call_worker.run_all),
        ("dibs.executor", "Executor", dibs.Executor),
        ("dibs.handles", "submit", dibs.submit),
        ("dibs.inside", "report", dibs.report),
        ("dibs.leased", "lease", dibs.lease),
        ("dibs.stopping", "is_stopping", dibs.is_stopping),
        ("dibs.sweep_handles", "Sweep", dibs.Sweep),
    ],
)
def test_names_sent_by_release_0_1_are_found_in_their_new_modules(module, name, now):
    assert pickling.loads(f"c{module}\n{name}\n.".encode()) is now

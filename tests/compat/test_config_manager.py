"""`ConfigManager`: instances, names and folders exactly as the old tool made them, for grids of any size."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_task_scheduler.config_manager import ConfigManager

SEEN = json.loads((Path(__file__).parent.parent / "data" / "gpu_task_scheduler.json").read_text())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drained(manager: ConfigManager) -> list[dict[str, Any]]:
    """Return every remaining instance."""
    return [manager.get_next_config() for _ in range(manager.get_num_left_config())]


def made(test_config: Any, **scheduler: Any) -> ConfigManager:
    """Make a manager for a single pretend GPU."""
    return ConfigManager({"scheduler_config": {"gpu": ["0"], **scheduler}, "test_config": test_config})


def told(call: Callable[[], object]) -> object:
    """Return the result of a call, or its error as text."""
    try:
        return call()
    except KeyError as error:
        return f"KeyError: {error}"


@pytest.mark.parametrize("case", SEEN["configs"], ids=lambda case: case["name"])
def test_it_behaves_as_recorded_from_the_old_tool(here: Path, case: dict[str, Any]) -> None:
    config = eval(case["config"])
    expected = json.loads(json.dumps(case["expected"]).replace("<CWD>", str(here)))
    if "error" in expected:
        with pytest.raises((ValueError, TypeError)) as caught:
            ConfigManager(config)
        assert f"{caught.type.__name__}: {caught.value}" == expected["error"]
        assert os.listdir() == expected["created"]
        return
    manager = ConfigManager(config)
    seen = {
        "num_left_start": manager.get_num_left_config(),
        "sequence": drained(manager),
        "after_end": manager.get_next_config(),
        "num_left_end": manager.get_num_left_config(),
        "gpu_envs": manager.get_gpu_envs(),
        "num_gpu": manager.get_num_gpu(),
        "all_in_string": told(manager.get_all_test_config_in_string),
        "scheduler_config": manager.get_all_scheduler_config(),
        "global_config": repr(manager.get_all_global_config()),
        "test_config": repr(manager.get_all_test_config()),
        "user_dict_mutated": config != eval(case["config"]),
        "created": os.listdir(),
    }
    assert seen == expected


@pytest.mark.parametrize("case", SEEN["folders"], ids=lambda case: case["name"])
def test_folder_names_of_real_projects_are_unchanged(here: Path, case: dict[str, Any]) -> None:
    root = os.path.dirname(case["first"].rstrip("/"))
    scheduler = {"config_string_value_maxlen": 1000} if "config_string_value_maxlen" in case["keys"] else {}
    if not root.startswith("<CWD>"):
        scheduler["result_root_folder"] = root
    folders = [one["work_dir"].replace(str(here), "<CWD>") for one in drained(made(case["test_config"], **scheduler))]
    assert (len(folders), len(set(folders)), folders[0], folders[-1]) == (
        case["count"], case["unique"], case["first"], case["last"],
    )  # fmt: skip
    assert max(len(os.path.basename(folder)) for folder in folders) == case["longest"]
    assert folders == case.get("folders", folders)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "could not find scheduler_config in config"),
        ({"scheduler_config": {"gpu": [0]}}, "gpu can only be a string or a list of strings"),
        ({"scheduler_config": {"gpu": [("0", "1")]}}, "gpu can only be a string or a list of strings"),
        ({"scheduler_config": {"gpu": ["0", None]}}, "gpu can only be a string or a list of strings"),
        ({"scheduler_config": {"gpu": ""}}, "please specify at least one gpu in scheduler_config"),
    ],
)
def test_an_id_that_names_no_gpu_is_refused(here: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ConfigManager(config)
    assert str(caught.value) == message


def test_gpu_groups_have_the_notation_of_cuda(here: Path) -> None:
    config: dict[str, Any] = {"scheduler_config": {"gpu": ["0", ["1", "2"], "MIG-x"]}}
    assert [place["name"] for place in ConfigManager(config).get_gpu_envs()] == ["gpu0", "gpu1,2", "gpuMIG-x"]
    assert config["scheduler_config"]["gpu"] == ["0", "1,2", "MIG-x"]


@pytest.mark.parametrize(
    ("test_config", "names"),
    [
        ([], []),
        ([{"a": []}], []),
        ([{"a": [1, 1]}], ["a-1,", "a-1,"]),
        ([{"b": [1, 2], "a": [3, 4]}], ["a-3,b-1,", "a-4,b-1,", "a-3,b-2,", "a-4,b-2,"]),
        ([{"a": range(3)}], ["a-0,", "a-1,", "a-2,"]),
        ([{"a": (x for x in "xy")}], ["a-x,", "a-y,"]),
        ([{"a": {"k": 1}}], ["a-k,"]),
        ([{"a": [[1, 2], "x y", None]}], ["a-1,2,", "a-xy,", "a-None,"]),
        ([{"a": [True, 0.1, 1e-05]}], ["a-True,", "a-0.1,", "a-1e-05,"]),
        ([{"a": ["p/q"]}], ["a-p/q,"]),
        ([{"B": [1], "a": [2], "_": [3]}], ["B-1,_-3,a-2,"]),
        ([{1: ["x"], 0: ["y"]}], ["0-y,1-x,"]),
        ([{"a": [1]}, {}, {"b": [2]}], ["a-1,", "", "b-2,"]),
        ([{"é": ["ü"]}], ["é-ü,"]),
    ],
)  # fmt: skip
def test_instances_are_named_as_before(here: Path, test_config: Any, names: list[str]) -> None:
    assert [one["test_config_string"] for one in drained(made(test_config))] == names


@pytest.mark.parametrize(
    ("scheduler", "folder"),
    [
        ({"config_string_value_maxlen": 2}, "a-[1,b-xy,"),
        ({"ignored_characters_for_folder_name": []}, "a-[1, 2],b-xyz,"),
        ({"ignored_characters_for_folder_name": ["a", ","]}, "-[1 2]b-xyz"),
        ({"ignored_keys_for_folder_name": ["a"]}, "b-xyz,"),
        ({"ignored_keys_for_folder_name": ["a", "b"]}, ""),
        ({"test_config_string_indicator": "", "test_config_string_separator": "__"}, "a1,2__bxyz__"),
        ({"config_string_value_maxlen": 0}, "a-,b-,"),
    ],
)
def test_options_that_shape_a_name_are_respected(here: Path, scheduler: dict[str, Any], folder: str) -> None:
    if scheduler.get("config_string_value_maxlen") == 2:
        scheduler = {**scheduler, "ignored_characters_for_folder_name": []}
    one = made([{"a": [[1, 2]], "b": ["xyz"]}], **scheduler).get_next_config()
    assert one["test_config_string_filtered"] == folder
    assert one["work_dir"] == os.path.join(here, "results", folder)


def test_global_values_are_copied_for_each_instance(here: Path) -> None:
    config = {"scheduler_config": {"gpu": ["0"]}, "global_config": {"list": [1]}, "test_config": [{"a": [1, 2]}]}
    manager = ConfigManager(config)
    manager.get_next_config()["config"]["list"].append(2)
    assert manager.get_next_config()["config"]["list"] == [1]


def test_several_managers_can_be_made_from_one_dictionary(here: Path) -> None:
    config: dict[str, Any] = {"scheduler_config": {"gpu": [["0", "1"]]}, "test_config": [{"a": range(3)}]}
    first = drained(ConfigManager(config))
    assert drained(ConfigManager(config)) == first


def test_instances_compare_and_pickle_as_plain_dictionaries(here: Path) -> None:
    one, again = made([{"a": [1]}]).get_next_config(), made([{"a": [1]}]).get_next_config()
    assert one == again
    assert pickle.loads(pickle.dumps(one, 2)) == one
    assert type(one["config"]) is dict


def test_changing_the_input_lists_afterwards_changes_nothing(here: Path) -> None:
    values = [1, 2]
    manager = made([{"a": values}])
    values.append(3)
    assert [one["config"]["a"] for one in drained(manager)] == [1, 2]


def test_the_argument_create_dir_has_no_effect(here: Path) -> None:
    made([{"a": [1]}]).get_next_config(create_dir=True)
    assert os.listdir() == ["temp"]


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 3), max_size=3), max_size=4), max_size=4)
)
def test_instances_are_in_the_order_of_the_product(test_config: list[dict[str, list[int]]]) -> None:
    from gpu_task_scheduler.config_manager import Instances

    expected = [
        dict(zip(block, row, strict=True)) for block in test_config for row in itertools.product(*block.values())
    ]
    assert list(Instances(test_config)) == expected


def test_a_million_instances_are_never_in_memory(here: Path) -> None:
    tracemalloc.start()
    try:
        manager = made([{"a": range(100), "b": range(100), "c": range(100)}, {"d": range(10**12)}])
        left = manager.get_num_left_config()
        for _ in range(2000):
            manager.get_next_config()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert left == 10**6 + 10**12
    assert peak < 1_000_000

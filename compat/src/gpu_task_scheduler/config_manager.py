"""`ConfigManager`: the instances of a configuration, one after the other, and the folder that belongs to each.

An instance is worked out from its number when it is asked for, so a grid of millions needs no more memory than its
lists. Folders found by earlier versions, and by the old tool, have exactly these names.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dibs.sweeps.sequences import LazySequence, Product

#: A dictionary of the user, with whatever is in it.
Config = dict[str, Any]

#: What `scheduler_config` holds where it does not say otherwise, in the order in which that is filled in.
DEFAULTS: Mapping[str, Callable[[], object]] = {
    "force_rerun": lambda: False,
    "result_root_folder": lambda: os.path.abspath("results/"),
    "test_config_string_separator": lambda: ",",
    "test_config_string_indicator": lambda: "-",
    "test_config_string_inst_separator": lambda: "+",
    "temp_folder": lambda: os.path.abspath("temp/"),
    "log_file": lambda: "worker.log",
    "scheduler_log_file_path": lambda: "scheduler.log",
    "config_string_value_maxlen": lambda: 30,
    "ignored_keys_for_folder_name": list,
    "ignored_characters_for_folder_name": lambda: [" ", "[", "]"],
}


class ConfigManager:
    """Fills the defaults into the caller's dictionary, checks it, and counts through its instances."""

    def __init__(self, config: Config) -> None:
        self._config = config
        if "scheduler_config" not in config:
            raise ValueError("could not find scheduler_config in config")
        self._scheduler_config: Config = config["scheduler_config"]
        for key, make in DEFAULTS.items():
            if key not in self._scheduler_config:
                self._scheduler_config[key] = make()
        # Before the GPUs are checked, as people have seen it.
        os.makedirs(self._scheduler_config["temp_folder"], exist_ok=True)
        _check_gpus(self._scheduler_config)
        self._global_config: Config = config.get("global_config", {})
        self._instances = Instances(config.get("test_config", [{}]))
        self._next = 0

    def get_all_scheduler_config(self) -> Config:
        """Return the settings of the scheduler, with defaults."""
        return self._scheduler_config

    def get_all_global_config(self) -> Config:
        """Return the parameters that are the same in every instance."""
        return self._global_config

    def get_all_test_config(self) -> list[Config]:
        """Return the tested parameters of every instance, as one list."""
        return list(self._instances)

    def get_all_test_config_in_string(self) -> str:
        """Return every dictionary of `test_config` as text, with its lists as they were given."""
        separator = self._scheduler_config["test_config_string_inst_separator"]
        return "".join(self._text(block, str) + separator for block in self._config["test_config"])

    def get_gpu_envs(self) -> list[dict[str, Any]]:
        """Return name and environment of each place where a task can run."""
        gpus = self._scheduler_config["gpu"]
        return [{"name": f"gpu{gpu}", "env": {"CUDA_VISIBLE_DEVICES": gpu}} for gpu in gpus]

    def get_next_config(self, create_dir: bool = False) -> dict[str, Any]:
        """Return the next instance: `config`, its name and its folder; at the end only `config`, which is None."""
        if self.get_num_left_config() <= 0:
            return {"config": None}
        tested = self._instances.at(self._next)
        self._next += 1
        ignored = self._scheduler_config["ignored_keys_for_folder_name"]
        named = self._name(tested)
        folder = self._name({key: value for key, value in tested.items() if key not in ignored})
        return {
            "config": {**copy.deepcopy(self._global_config), **tested},
            "test_config_string": named,
            "test_config_string_filtered": folder,
            "work_dir": os.path.join(self._scheduler_config["result_root_folder"], folder),
        }

    def get_num_left_config(self) -> int:
        """Return how many instances have not been handed out."""
        return len(self._instances) - self._next

    def get_num_gpu(self) -> int:
        """Return how many tasks can run at once."""
        return len(self._scheduler_config["gpu"])

    def _name(self, tested: Config) -> str:
        """Return what an instance is called: its parameters in order, long values cut, some characters left out."""
        longest = self._scheduler_config["config_string_value_maxlen"]
        name = self._text(tested, lambda value: str(value)[0:longest])
        for character in self._scheduler_config["ignored_characters_for_folder_name"]:
            name = name.replace(character, "")
        return name

    def _text(self, pairs: Config, shown: Callable[[Any], str]) -> str:
        indicator = self._scheduler_config["test_config_string_indicator"]
        separator = self._scheduler_config["test_config_string_separator"]
        return "".join(f"{key}{indicator}{shown(pairs[key])}{separator}" for key in sorted(pairs))


def _check_gpus(scheduler_config: Config) -> None:
    """Refuse what names no GPU, and write groups as the text that CUDA understands."""
    if "gpu" not in scheduler_config:
        raise ValueError("could not find gpu in scheduler_config")
    gpus = scheduler_config["gpu"]
    if len(gpus) < 1:
        raise ValueError("please specify at least one gpu in scheduler_config")
    for place, gpu in enumerate(gpus):
        if isinstance(gpu, list):
            gpus[place] = ",".join(gpu)
        elif not isinstance(gpu, str):
            raise ValueError("gpu can only be a string or a list of strings")


class Instances(LazySequence[Config]):
    """Every combination of every block of `test_config`, the last parameter fastest, each made when asked for."""

    __slots__ = ("_blocks",)

    def __init__(self, test_config: Sequence[Mapping[Any, Any]]) -> None:
        self._blocks = [(list(block), Product([_pool(values) for values in block.values()])) for block in test_config]

    def __len__(self) -> int:
        return sum(points.size for _, points in self._blocks)

    def at(self, place: int) -> Config:
        """Return the tested parameters of the instance with this number."""
        for names, points in self._blocks:
            if place < points.size:
                return dict(zip(names, points.at(place), strict=True))
            place -= points.size
        raise IndexError(place)


def _pool(values: Any) -> Sequence[Any]:
    """Return values that can be looked up by number; a generator is read now, and only once."""
    return values if isinstance(values, str | range) else tuple(values)

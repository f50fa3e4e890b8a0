"""`--preset`: options under a name in the settings, checked as on the command line, which overrides them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs.errors import UserError
from dibs.model import fields
from dibs.submission import job_options, options, presets
from dibs.submission.options import Args, Caller
from dibs.system import settings
from dibs.system.configuration import presets as preset_settings

BIG = """
[presets.big]
gpus = 4
time = "12h"
tag = ["a", "b"]
wait-tree = true
strict-gpus = false
"""


def typed(tmp_path: Path, text: str, *words: str) -> Args:
    """Return the options of a command line of somebody with these settings."""
    file = tmp_path / "config.toml"
    file.write_text(text)
    caller = Caller({"DIBS_CONFIG": str(file), "DIBS_LEASE_DIR": str(tmp_path)})
    return presets.applied(options.parse("add", job_options.OPTIONS, words, takes_command=True, caller=caller))


def test_the_options_of_a_preset_are_taken(tmp_path: Path) -> None:
    args = typed(tmp_path, BIG, "--preset", "big", "train.py")
    assert args.get(job_options.GPUS) == job_options.Count(4)
    assert (args.get(job_options.TIME), args.all(job_options.TAG)) == (12 * 3600, ("a", "b"))
    assert args.has(job_options.WAIT_TREE)
    assert not args.has(job_options.STRICT_GPUS)
    assert args.words == ("train.py",)


def test_the_command_line_overrides_a_preset(tmp_path: Path) -> None:
    args = typed(tmp_path, BIG, "--preset", "big", "--gpu-ids", "0,1", "-t", "1h", "--tag", "c", "train.py")
    assert (args.get(job_options.GPUS), args.get(job_options.GPU_IDS)) == (None, ("0", "1"))
    assert (args.get(job_options.TIME), args.all(job_options.TAG)) == (3600, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BIG, 'there is no preset "bgi". Did you mean big?'),
        ("", 'there is no preset "bgi". Make one: dibs config set presets.big.gpus 4'),
        ("[presets.zebra]\ngpus = 1", 'there is no preset "bgi". They are: zebra.'),
        ('[presets.bgi]\ngpus = "two"', 'presets.bgi.gpus: expected a whole number from 0 up, got "two".'),
        ("[presets.bgi]\ntime = true", "presets.bgi.time: expected a time such as 90m, 2h or 1d12h"),
        ('[presets.bgi]\nwait-tree = "x"', 'presets.bgi.wait-tree: expected true or false, got "x".'),
    ],
)
def test_a_preset_that_is_unknown_or_wrong_gets_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        typed(tmp_path, text, "--preset", "bgi", "train.py")
    assert refusal.value.line().startswith(said)
    assert "\n" not in refusal.value.line()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[presets.big]\ngpu = 1", 'there is no setting "gpu" in [presets.NAME]. Did you mean gpus?'),
        ("[presets.big]\nafter = 1", 'there is no setting "after" in [presets.NAME].'),
        ("[presets.big]\ngpus = []", "expected a text, a number, true, false, or a list of texts"),
        ("[presets.big]\ntag = [true]", "expected a text, a number, true, false, or a list of texts"),
        ('presets = "big"', "presets: expected a table such as [presets.lab]"),
    ],
)
def test_a_file_with_another_shape_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=r"config\.toml") as refusal:
        settings.check_text(tmp_path / "config.toml", text, {})
    assert said in refusal.value.line()


def test_a_preset_can_have_every_option_of_a_job_but_those_of_one_submission() -> None:
    of_one = {"--after", "--after-any", "--after-end", "--dependency", "--begin"}
    known = {option for own in fields.ALL for option in own.options}
    assert sorted(f"--{name}" for name in preset_settings.NAMES) == sorted(known - of_one)

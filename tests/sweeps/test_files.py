"""Sweep files: YAML, JSON, TOML, CSV and those of wandb; and one clear line for every mistake in them."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import errors
from dibs.sweeps import files, templates

YAML = """
name: lr-scan
project: vit
command: python train.py --lr {lr} --bs {bs} --seed {seed} --out {dir}
gpus: 1
vram: 18G
time: 2:00:00
parameters:
  lr: [1e-3, 1.0e-5, 0.1]
  bs: [32, 64]
  seed: range(2)
exclude: ["bs == 64 and lr > 0.01"]
sample: 5
seed: 7
shuffle: true
metric: {name: val_loss, goal: minimize, from: 'val_loss[=: ]+([0-9.]+)'}
dir: results/{lr}-{bs}-{seed}
jobs: 4
halt: 3
"""


@pytest.fixture
def load(tmp_path):
    """Write a file and read it as a sweep."""

    def write(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return files.load(path)

    return write


def texts(sweep):
    """Return the values of all points as written, joined."""
    return [" ".join(value.text for value in point.values) for point in sweep.points()]


def commands(sweep):
    """Return all commands of a sweep."""
    sweep.check()
    writer = templates.Writer(sweep.command, sweep.folder)
    return [writer.command(point) for point in sweep.points()]


def test_every_key_is_read(load):
    sweep = load("a.yaml", YAML)
    assert (sweep.name, sweep.project, sweep.gpus) == ("lr-scan", "vit", "1")
    assert (sweep.vram_bytes, sweep.time_s) == (18 * 1024**3, 7200)
    assert (sweep.sample, sweep.seed, sweep.is_shuffled, sweep.jobs, sweep.halt) == (5, 7, True, 4, 3)
    assert (sweep.metric, sweep.goal, sweep.metric_pattern) == ("val_loss", "minimize", "val_loss[=: ]+([0-9.]+)")
    assert len(commands(sweep)) == 5
    assert sweep.notes == ()


def test_values_keep_their_spelling(load):
    """Even where YAML reads something else: 1e-3 as text, 1.0e-5 as a float, `on` as a boolean, 010 as eight."""
    sweep = load(
        "a.yaml", "command: x {a}\nparameters: {a: [1e-3, 1.0e-5, 0.10, on, 010, 12:30:00, '5', 2026-01-01, ~]}"
    )
    assert texts(sweep) == ["1e-3", "1.0e-5", "0.10", "on", "010", "12:30:00", "5", "2026-01-01", "~"]
    assert [point.data()["a"] for point in sweep.points()] == [
        *(0.001, 1e-5, 0.1, True, "010", "12:30:00", "5", "2026-01-01", None)
    ]


SAME = {
    "a.yaml": "command: [x, '{lr}', '{opt}']\nparameters:\n  lr: [0.10, 1.0e-5]\n  opt: [a b, {k: [1, 2]}]\n",
    "a.yml": "command: [x, '{lr}', '{opt}']\nparameters:\n  lr: [0.10, 1.0e-5]\n  opt: [a b, {k: [1, 2]}]\n",
    "a.json": '{"command": ["x", "{lr}", "{opt}"],"parameters": {"lr": [0.10, 1.0e-5], "opt": ["a b", {"k": [1, 2]}]}}',
    "a.toml": 'command = ["x", "{lr}", "{opt}"]\n[parameters]\nlr = [0.10, 1.0e-5]\nopt = ["a b", {k = [1, 2]}]\n',
}


@pytest.mark.parametrize("name", SAME)
def test_every_format_gives_the_same_sweep(load, name):
    sweep = load(name, SAME[name])
    expected = [("x", lr, opt) for lr in ("0.10", "1.0e-5") for opt in ("a b", '{"k":[1,2]}')]
    assert commands(sweep) == expected


def test_a_csv_file_is_one_run_per_row(load):
    sweep = load("a.csv", b'\xef\xbb\xbflr,name\r\n1e-3,"a, b"\r\n\r\n0.1,\r\n')
    assert [point.data() for point in sweep.points()] == [{"lr": 0.001, "name": "a, b"}, {"lr": 0.1, "name": ""}]
    assert texts(sweep) == ["1e-3 a, b", "0.1 "]
    with pytest.raises(errors.UserError, match="expected a command, got none"):
        sweep.check()


def test_blocks_zip_and_when_are_supported(load):
    sweep = load(
        "a.yaml",
        "command: x {args}\nzip: [model, ckpt]\nwhen: {m: opt == 'sgd'}\n"
        "parameters: {seed: 0}\nblocks:\n"
        "- {model: [a, b], ckpt: [p, q], opt: adam}\n- {opt: [sgd, adam], m: [0.9, 0.99]}\n",
    )
    assert commands(sweep) == [
        "x --seed=0 --model=a --ckpt=p --opt=adam",
        "x --seed=0 --model=b --ckpt=q --opt=adam",
        "x --seed=0 --opt=sgd --m=0.9",
        "x --seed=0 --opt=sgd --m=0.99",
        "x --seed=0 --opt=adam",
    ]


def test_ranges_may_use_the_notation_of_wandb(load):
    sweep = load("a.yaml", "command: x {a} {b}\nsample: 3\nparameters: {a: {values: [1, 2]}, b: {min: 0.5, max: 1.5}}")
    assert all(0.5 <= point.data()["b"] <= 1.5 for point in sweep.points())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("comand: x\nparameters: {a: 1}", 'unknown key "comand". Did you mean command?'),
        ("command: x {a}", "expected the key parameters, got none."),
        (
            "command: x {a}\nparameters: [1]",
            "parameters: expected names with values, such as lr: [0.1, 0.01], got a list.",
        ),
        ("command: {}\nparameters: {a: 1}", "command: expected a text or a list of words, got a mapping."),
        ("command: x\nparameters: {a: []}", "parameters: expected values for the parameter a, got none."),
        ("command: x\nparameters: {a: [1, 1]}", "a has the value 1 twice."),
        ("command: x\nparameters: {'a b': 1}", 'parameters: expected a name of letters, digits, "_", "." and "-"'),
        ("command: x\nparameters: {a: range(0)}", "parameters: a expected range(STOP)"),
        ("command: x\nparameters: {a: {min: 1}}", "parameters: a: expected values, value, or min and max"),
        ("command: x\nparameters: {a: {mni: 1}}", 'parameters: a: unknown key "mni". Did you mean min?'),
        ("command: x\nparameters: {a: 1}\ngpus: two", 'gpus: expected a count such as 1 or 2:a100, got "two".'),
        (
            "command: x\nparameters: {a: 1}\ntime: 30",
            'time: expected a time such as 90m, 2h or 1d12h, got "30": write 30m',
        ),
        (
            "command: x\nparameters: {a: 1}\nvram: 18",
            'vram: expected a size such as 18G, 512M or 24GiB, got "18": write',
        ),
        ("command: x\nparameters: {a: 1}\nsample: 0", 'sample: expected a whole number from 1 up, got "0".'),
        ("command: x\nparameters: {a: 1}\njobs: 1.5", 'jobs: expected a whole number from 1 up, got "1.5".'),
        ("command: x\nparameters: {a: 1}\nseed: true", 'seed: expected a whole number, got "true".'),
        ("command: x\nparameters: {a: 1}\nname: [x]", "name: expected a name, got a list."),
        ("command: x\nparameters: {a: 1}\nname:", "name: expected a name, got nothing."),
        ("command: x\nparameters: {a: 1}\ngoal: up", 'goal: expected minimize or maximize, got "up".'),
        ("command: x\nparameters: {a: 1}\nmetric: 'loss=('", 'metric: expected a regular expression, got "("'),
        ("command: x\nparameters: {a: 1}\nzip: a", 'zip: expected a list of lists of names, got "a".'),
        ("command: x\nparameters: {a: 1}\nzip: [[a, b]]", "zip uses b; the parameters are a."),
        ("command: x\nparameters: {a: 1}\nzip: [a, [b]]", "zip: expected a list of lists of names, got"),
        ("command: x\nparameters: {a: 1}\nwhen: [x]", "when: expected names with conditions such as"),
        ("command: x\nparameters: {a: 1}\nwhen: {a: [x]}", "when: a: expected a condition such as"),
        ("command: x\nparameters: {a: 1}\nexclude: [a is]", "expected a condition such as"),
        ("command: x\nparameters: {a: 1}\nblocks: {b: 1}", "blocks: expected a list of mappings, got a mapping."),
        ("command: x\nparameters: {a: 1}\nblocks: [b]", "blocks: 1: expected names with values"),
        ("command: x\nparameters: {a: 1}\nparameters: {b: 1}", 'the key "parameters" appears twice'),
        ("a: [", "expected YAML, got something else: line"),
        ("- a", "expected keys such as command and parameters, got a list."),
        ("", "expected keys such as command and parameters, got nothing."),
        ("? [a]\n: b", "expected YAML, got something else: a key is a list or a mapping"),
        ("a: !!python/object:os.system x", "expected YAML, got something else: line"),
    ],
)
def test_a_mistake_is_a_one_line_error_with_file_and_key(load, tmp_path, text, complaint):
    with pytest.raises(errors.UserError) as caught:
        load("a.yaml", text)
    line = caught.value.line()
    assert line.startswith(f"{tmp_path}/a.yaml: ")
    assert complaint in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.json", '{"command": }', "expected JSON, got something else: line 1: expecting value."),
        ("a.json", '{"a": 1, "a": 2}', 'the key "a" appears twice'),
        ("a.json", '{"parameters": {"a": NaN}}', "NaN is not a number that can be stored"),
        ("a.json", '{"parameters": {"a": 1e999}}', "1e999 is not a number that can be stored"),
        ("a.json", "[" * 100_000, "expected a few levels of keys, got too many."),
        ("a.toml", "a = ", "expected TOML, got something else:"),
        ("a.csv", "", "expected a first row with the names of the parameters, got nothing."),
        ("a.csv", "a,b\n", "expected a row for every run, got only the names."),
        ("a.csv", "a,b\n1,2\n1\n", "line 3: expected 2 values, got 1."),
        ("a.csv", "a,a\n1,2\n", "expected the column a once, got it twice."),
        ("a.csv", "learning rate\n1\n", 'expected a name of letters, digits, "_", "." and "-", got "learning rate".'),
        ("a.csv", "a,b\n1,2\n1,2\n", "a, b has the value 1, 2 twice."),
        ("a.csv", 'a\n"x\n', "expected CSV, got something else:"),
        ("a.yaml", b"\xff", "expected UTF-8, got the byte 0xff."),
        ("a.txt", "x", "expected a sweep file (.yaml, .yml, .json, .toml, .csv), got"),
    ],
)
def test_a_malformed_file_is_a_one_line_error(load, name, text, complaint):
    with pytest.raises(errors.UserError) as caught:
        load(name, text)
    assert complaint in caught.value.line()
    assert "\n" not in caught.value.line()


def test_an_unreadable_file_is_a_one_line_error(tmp_path):
    with pytest.raises(errors.UserError, match="cannot be read: no such file or directory"):
        files.load(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").mkdir()
    with pytest.raises(errors.UserError, match="cannot be read: is a directory"):
        files.load(tmp_path / "b.yaml")


def test_yaml_is_imported_only_for_a_yaml_file(tmp_path):
    (tmp_path / "a.json").write_text(SAME["a.json"])
    program = "import sys; from dibs.sweeps import files as s; s.load(sys.argv[1]); print('yaml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a.json"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


WANDB = """
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.001, 1.0e-4]}
  epochs: {value: 5}
  fast: {values: [true]}
  k: {min: 1, max: 2}
"""


def test_a_wandb_grid_file_is_accepted_unchanged(load):
    sweep = load("sweep.yaml", WANDB)
    assert commands(sweep) == [
        ("/usr/bin/env", "python", "train.py", "--epochs=5", "--fast=True", f"--k={k}", f"--lr={lr}")
        for k in (1, 2)
        for lr in ("0.001", "0.0001")
    ]
    assert (sweep.metric, sweep.goal) == ("val_loss", "minimize")


def test_the_macros_of_a_wandb_command_are_supported(load):
    words = ["${env}", "torchrun", "${program}", "--flag", "{x}", "${args_no_boolean_flags}", "c=${args_json}"]
    sweep = load("sweep.yaml", WANDB + f"command: {json.dumps(words)}\n")
    first = commands(sweep)[0]
    assert first[:5] == ("/usr/bin/env", "torchrun", "train.py", "--flag", "{x}")
    assert first[5:9] == ("--epochs=5", "--fast", "--k=1", "--lr=0.001")
    assert json.loads(first[9].removeprefix("c=")) == {"lr": 0.001, "epochs": 5, "fast": True, "k": 1}
    assert len(first) == 10


#: Sweep files with what wandb documents, and the commands that its own code (release 0.31) makes of them.
RECORDED = json.loads((Path(__file__).parent.parent / "data" / "wandb_commands.json").read_text())


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["title"])
def test_the_commands_of_a_wandb_file_are_those_of_its_agent(load, case, monkeypatch):
    monkeypatch.setenv("DATA_DIR", "/data")
    found = sorted(list(words) for words in commands(load("sweep.yaml", case["file"])))
    assert [without_json(words) for words in found] == [without_json(words) for words in case["commands"]]


def without_json(words):
    """Return a command with its JSON argument read: escapes do not matter."""
    return [json.loads(word) if word.startswith("{") else word for word in words]


DISTRIBUTIONS = """
program: train.py
method: random
run_cap: 200
early_terminate: {type: hyperband}
parameters:
  a: {distribution: uniform, min: 1, max: 2}
  b: {distribution: log_uniform_values, min: 0.001, max: 1}
  c: {distribution: log_uniform, min: -3, max: 0}
  d: {distribution: q_uniform, min: 0, max: 1, q: 0.25}
  e: {distribution: normal, mu: 10, sigma: 0.1}
  f: {distribution: int_uniform, min: 1, max: 3}
  g: {values: [x, y], probabilities: [0.9, 0.1]}
  h: {distribution: q_log_uniform_values, min: 1, max: 64, q: 8}
  i: {min: 0.0, max: 1.0}
  j: {distribution: log_normal, mu: 0, sigma: 1}
"""


def test_a_wandb_random_search_is_accepted_unchanged(load):
    sweep = load("sweep.yaml", DISTRIBUTIONS)
    found = [point.data() for point in sweep.points()]
    assert len(found) == 200
    assert all(1 <= one["a"] <= 2 and 0.001 <= one["b"] <= 1 and 0.049 < one["c"] <= 1 for one in found)
    assert {one["d"] for one in found} == {0, 0.25, 0.5, 0.75, 1}
    assert all(9 < one["e"] < 11 and 0 <= one["i"] <= 1 and one["j"] > 0 for one in found)
    assert {one["f"] for one in found} == {1, 2, 3}
    assert 160 < sum(one["g"] == "x" for one in found) < 195
    assert {one["h"] for one in found} <= {1, 8, 16, 24, 32, 40, 48, 56, 64}
    assert "early_terminate is ignored: the file names no metric" in sweep.notes
    assert "c is drawn from 0.04979 to 1: the bounds of log_uniform are exponents of e" in sweep.notes


BAYES = """
program: train.py
method: bayes
run_cap: 12
metric: {name: val_loss, goal: maximize}
early_terminate: {type: hyperband, min_iter: 3}
parameters:
  lr: {min: 0.1, max: 0.5}
  opt: {values: [adam, sgd]}
"""


def test_a_wandb_bayes_file_is_a_search(load):
    sweep = load("sweep.yaml", BAYES)
    sweep.check()
    assert (sweep.search, sweep.trials, sweep.sample, sweep.early_stop) == ("tpe", 12, None, "hyperband")
    assert (sweep.metric, sweep.goal) == ("val_loss", "maximize")
    # The daemon makes the commands from the text of the template, and they are those of wandb's agent.
    again = templates.parse(shlex.split(sweep.command.source))
    point = next(iter(sweep.points()))
    words = templates.Writer(again).command(point)
    assert words == templates.Writer(sweep.command).command(point)
    assert words[:3] == ("/usr/bin/env", "python", "train.py")


def test_a_wandb_bayes_file_needs_a_run_count_and_a_metric(load):
    with pytest.raises(errors.UserError, match="--search needs the number of runs"):
        load("sweep.yaml", BAYES.replace("run_cap: 12", "")).check()
    with pytest.raises(errors.UserError, match="needs a metric"):
        load("sweep.yaml", BAYES.replace("metric: {name: val_loss, goal: maximize}", "")).check()


def test_a_wandb_random_search_needs_a_run_count(load):
    sweep = load("sweep.yaml", "program: t.py\nmethod: random\nparameters: {a: {values: [1, 2]}}")
    with pytest.raises(errors.UserError, match="--sample N"):
        sweep.points()


GRID = "method: grid\nprogram: t\n"
ONE = f"{GRID}parameters: {{a: {{value: 1}}}}\n"
RANDOM = "method: random\nprogram: t\nparameters: {a: "


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("method: magic\nparameters: {a: {value: 1}}", 'method: expected grid, random or bayes, got "magic".'),
        (
            "method: grid\nprogram: t\nmetric: {name: l}\nearly_terminate: {type: x}\nparameters: {a: {value: 1}}",
            "early_terminate: expected type: hyperband",
        ),
        (f"{GRID}parameters: {{a: {{min: 0.5, max: 1.5}}}}", "parameters: a: expected values for method: grid"),
        (f"{GRID}parameters: {{a: 1}}", 'parameters: a: expected values, value, or min and max, got "1".'),
        ("method: grid\nparameters: {a: {value: 1}}", "command: expected the key program, which ${program} stands for"),
        (GRID, "parameters: expected names with values, got nothing."),
        (f"{ONE}run_cap: x", 'run_cap: expected a whole number from 1 up, got "x".'),
        (f"{ONE}command: ['${{args_json_file}}']", 'got "${args_json_file}"'),
        ("method: grid\nprogram: []\nparameters: {a: {value: 1}}", "expected program to be a file, got a list."),
        (f"{ONE}command: []", "command: expected a list of words, got a list."),
        ("method: grid\nparamters: {}", 'unknown key "paramters". Did you mean parameters?'),
        (f"{RANDOM}{{distribution: beta}}}}", "a: expected distribution to be one of constant"),
        (f"{RANDOM}{{distribution: uniform, min: 2, max: 1}}}}", "a: expected min to be less than max"),
        (f"{RANDOM}{{distribution: log_uniform_values, min: 0, max: 1}}}}", "a: expected min above 0"),
        (f"{RANDOM}{{distribution: uniform, min: x, max: 1}}}}", 'a: expected min to be a number, got "x".'),
        (f"{RANDOM}{{distribution: normal, sigma: 0}}}}", "a: expected sigma above 0"),
        (f"{RANDOM}{{distribution: q_uniform, min: 0, max: 1, q: -1}}}}", "a: expected q above 0"),
        (f"{RANDOM}{{values: [1], probabilities: [1, 2]}}}}", "a: expected as many probabilities as values"),
        (f"{RANDOM}{{parameters: {{b: {{value: 1}}}}}}}}", 'a: unknown key "parameters".'),
    ],
)
def test_a_mistake_in_a_wandb_file_is_a_one_line_error(load, text, complaint):
    with pytest.raises(errors.UserError) as caught:
        load("sweep.yaml", text)
    assert complaint in caught.value.line()
    assert "\n" not in caught.value.line()

"""Diagnosis and help: `doctor`, `config`, `report`, `help TOPIC`, the man page, and shell completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.cli import help_topics
from dibs.cli import main as cli
from dibs.cli.verbs import completion, report
from dibs.cli.verbs import help as pages
from dibs.client import doctor
from dibs.client.checks import gpus
from dibs.client.checks.findings import Finding
from dibs.errors import MachineError, UserError
from dibs.submission import options
from dibs.system import settings
from dibs.system.configuration import entries
from dibs.version import __version__
from fakes.nvml import world
from terminal import Terminal

ROOT = Path(__file__).parent.parent.parent


# -- doctor --


def findings(bench: Bench, code: int = 0, **environ: str) -> dict[str, list[dict[str, str]]]:
    """Return the findings of the doctor, by subject."""
    done = bench.cli("doctor", "--json", environ=environ)
    assert (done.returncode, done.stderr) == (code, "")
    told = json.loads(done.stdout)
    assert told["ok"] is (code == 0)
    found: dict[str, list[dict[str, str]]] = {}
    for each in told["findings"]:
        found.setdefault(each["check"], []).append(each)
    return found


def test_the_doctor_needs_no_daemon_and_starts_none(bench: Bench) -> None:
    found = findings(bench)
    assert {
        "python",
        "settings",
        "gpus",
        "state",
        "disk",
        "leases",
        "daemon",
        "logout",
        "reboot",
        "clock",
        "cgroup",
    } <= {*found}
    assert found["gpus"][0]["text"] == "4: Pretend GPU"
    assert "not running" in found["daemon"][0]["text"]
    assert "will be created" in found["state"][0]["text"]
    assert not bench.home.exists()


def test_the_doctor_checks_a_running_daemon(bench: Bench) -> None:
    bench.until(bench.add("true"))
    found = findings(bench)
    assert f"pid {bench.pid()}, version {__version__}" in found["daemon"][0]["text"]
    assert found["state"][0]["text"].endswith("0700)")
    assert "database" in found["use"][0]["text"]
    text = bench.cli("doctor").stdout
    assert re.search(r"^ok +gpus +4: Pretend GPU$", text, re.MULTILINE)
    assert re.search(r"^warning +leases .*\n +-> Unset DIBS_LEASE_DIR", text, re.MULTILINE)
    assert "\x1b" not in text


def test_a_state_folder_with_open_permissions_is_a_problem_with_its_fix(bench: Bench) -> None:
    bench.home.mkdir()
    bench.home.chmod(0o755)
    found = findings(bench, code=1)
    assert found["state"][0]["level"] == "problem"
    assert found["state"][0]["fix"] == f"chmod 700 {bench.home}"


def test_broken_settings_and_folders_are_problems(bench: Bench) -> None:
    found = findings(bench, code=1, DIBS_GRACE="30")
    assert "DIBS_GRACE: expected a time" in found["settings"][0]["text"]
    found = findings(bench, code=1, DIBS_FILES=str(bench.folder / "missing"))
    assert found["files"][0]["level"] == "problem"
    found = findings(bench, code=1, DIBS_LEASE_DIR=str(bench.folder / "nowhere"))
    assert found["leases"][0]["level"] == "problem"
    assert findings(bench, DIBS_DEVICES="none")["gpus"][-1]["fix"].endswith("export DIBS_DEVICES=fake:4")


def test_a_daemon_with_a_deleted_socket_is_found(bench: Bench) -> None:
    bench.start()
    (bench.home / "dibs.sock").unlink()
    found = findings(bench, code=1)
    assert found["daemon"][0]["fix"] == "dibs daemon restart"
    bench.kill()


def test_a_hanging_check_is_a_finding() -> None:
    stuck = threading.Event()

    def hang() -> list[Finding]:
        stuck.wait()
        return []

    found = doctor.within("disk", hang, deadline_s=0.05)
    stuck.set()
    assert [(each.check, each.level) for each in found] == [("disk", "problem")]


def test_errors_of_a_check_are_findings_and_bugs_are_not() -> None:
    def fail(error: Exception) -> Any:
        raise error

    assert doctor.within("x", lambda: fail(MachineError("broken", "mend it"))) == [
        Finding("x", "problem", "broken", "mend it")
    ]
    assert doctor.within("x", lambda: fail(OSError(5, "no luck", "/f")))[0].text == "/f: no luck"
    with pytest.raises(KeyError):
        doctor.within("x", lambda: fail(KeyError("bug")))


def test_gpus_that_only_this_shell_sees_are_a_problem(bench: Bench, tmp_path: Path) -> None:
    """The driver's library is found through LD_LIBRARY_PATH, which the daemon does not get."""
    driver = world.World(world.build(tmp_path), tmp_path / "state.txt")
    driver.is_now("gpu 0", "gpu 1")
    bench.environ |= {"DIBS_DEVICES": "", "DIBS_FAKE_NVML_STATE": str(driver.state)}
    bench.start()
    found = findings(bench, 1, LD_LIBRARY_PATH=str(tmp_path), FAKE_NVML_STATE=str(driver.state))
    (told,) = found["gpus"]
    assert (told["level"], told["text"]) == ("problem", "the daemon sees none; this shell sees 2")
    assert f"dibs config set nvml_library {driver.library} && dibs daemon restart" in told["fix"]


def test_another_setting_of_the_daemons_gpus_is_reported(bench: Bench) -> None:
    bench.start()
    first, second = findings(bench, DIBS_DEVICES="fake:2")["gpus"]
    assert (first["level"], second["level"]) == ("warning", "ok")
    assert first["text"] == "the daemon uses these GPUs (setting devices): fake:4; this shell: fake:2"
    assert "`dibs daemon restart`" in first["fix"]


def test_a_hanging_driver_does_not_stop_the_doctor(tmp_path: Path) -> None:
    driver = world.World(world.build(tmp_path), tmp_path / "state.txt")
    driver.is_now("gpu 0 util=7", "slow nvmlInitWithFlags ms=3600000")
    program = (
        "import sys; from pathlib import Path; from dibs.system import settings\n"
        "from dibs.client.checks import gpus; from dibs.client.checks.findings import Patient\n"
        "here = Path(sys.argv[1]); values = settings.Settings(nvml_library=Path(sys.argv[2]))\n"
        "for found in gpus.gpus(Patient({}, here, None, values, str(here)), driver_s=0.2): print(found)"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(driver.library)]
    environ = os.environ | {"FAKE_NVML_STATE": str(driver.state)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.count("Finding(check='gpus', level='problem'") == 1
    assert "the NVIDIA driver did not answer for 0.2 s" in done.stdout
    assert gpus.DRIVER_S < doctor.DEADLINE_S


# -- config --


def test_config_lists_every_setting_with_its_source(bench: Bench) -> None:
    config = bench.folder / "config.toml"
    config.write_text('grace = "2m"\nenv_exclude = ["AWS_*", "*_TOKEN"]\n')
    environ = {"DIBS_CONFIG": str(config)}
    told = json.loads(bench.cli("config", "--json", environ=environ).stdout)
    assert list(told) == [setting.name for setting in settings.SETTINGS]
    assert (told["grace"]["value"], told["grace"]["source"]) == ("2m", str(config))
    assert (told["devices"]["value"], told["devices"]["source"]) == ("fake:4", "DIBS_DEVICES")
    assert (told["collect_for"]["value"], told["collect_for"]["source"]) == ("1h", "default")
    assert told["env_exclude"]["value"] == "AWS_*,*_TOKEN"
    text = bench.cli("config", environ=environ).stdout
    for setting in settings.SETTINGS:
        assert setting.meaning in text
    assert bench.cli("config", "grace", environ=environ).stdout == "2m\n"
    assert bench.cli("config", "DIBS_GRACE").stdout == "30s\n"
    assert json.loads(bench.cli("config", "grace", "--json").stdout)["value"] == "30s"
    assert not bench.home.exists(), "looking at settings starts no daemon"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0s"), (30.0, "30s"), (3600.0, "1h"), (90061.0, "1d1h1m1s"), (0.5, "0.5s"), (None, ""), (("A", "B"), "A,B")],
)
def test_values_are_shown_as_they_would_be_written(value: object, written: str) -> None:
    assert entries.written(value) == written


@pytest.mark.parametrize(
    ("words", "text", "error"),
    [
        (["config", "grce"], "", 'there is no setting "grce". Did you mean grace?'),
        (["config", "banana"], "", 'there is no setting "banana". `dibs config` lists them.'),
        (["config", "a", "b"], "", "config expected one setting"),
        (["config"], "# hi\ngrace = 30\n", "config.toml, line 2: grace: expected a time such as 90m"),
        (["config"], "grace\n", "config.toml, line 1: expected TOML"),
        (["status"], "\n\nnonsense = 1\n", 'config.toml, line 3: there is no setting "nonsense".'),
        (["report", "loss"], "", 'expected numbers such as loss=0.3 step=10, got "loss".'),
        (["report"], "", "expected numbers such as loss=0.3 step=10, got nothing."),
        (["report", "loss=low"], "", 'loss expected a number, got "low".'),
        (["report", "=3"], "", 'expected numbers such as loss=0.3 step=10, got "=3".'),
        (["report", "at=3"], "", "at is the time of the report itself"),
        (["report", "a=1", "a=2"], "", "got a twice"),
        (["report", "loss=0.3"], "", "report works only inside a job"),
        (["completion"], "", "completion expected bash, zsh or fish, got nothing."),
        (["completion", "tcsh"], "", 'completion expected bash, zsh or fish, got "tcsh".'),
        (["help", "selctors"], "", 'there is no verb or topic "selctors". Did you mean selectors?'),
        (["help", "squeue"], "", "Did you mean status?"),
        (["help", "zzz"], "", "See `dibs help`."),
        (["help", "add", "run"], "", "help expected one verb or topic"),
        (["doctor", "gpus"], "", 'doctor takes no arguments, got "gpus".'),
        (["show", "nam:vit"], "", "Did you mean name:vit?"),
        (["show", "@-1"], "", "Did you mean @~1?"),
        (["add", "--prioritty", "1", "true"], "", "Did you mean --priority?"),
        (["selectors"], "", 'there is no verb "selectors". Did you mean help selectors?'),
        (["htop"], "", "Did you mean top?"),
        (["wat"], "", 'there is no verb "wat".'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_mistake_is_a_one_line_error_and_starts_nothing(
    bench: Bench, words: list[str], text: str, error: str
) -> None:
    config = bench.folder / "config.toml"
    config.write_text(text)
    done = bench.cli(*words, environ={"DIBS_CONFIG": str(config)})
    if words == ["status"] and done.returncode == 5:
        # The daemon could not start, for the same reason.
        assert error in done.stderr
        return
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dibs: ")
    assert done.stderr.count("\n") == 1
    assert error in done.stderr
    assert not bench.home.exists()


# -- report --


def test_metrics_reported_inside_a_job_are_visible_outside(bench: Bench) -> None:
    dibs = f"{sys.executable} -m dibs"
    job_id = bench.add(f"{dibs} report loss=0.5 step=1; {dibs} report loss=0.25 acc=nan && sleep 1000")
    seen = wait_for(lambda: bench.job(job_id), lambda job: job["report"] is not None and "acc" in job["report"])
    assert seen["report"] == {"step": 1, "loss": 0.25, "acc": None}
    assert bench.jobs("running")[0]["report"] == seen["report"]
    assert "\nreported   step=1 loss=0.25 acc=nan\n" in bench.cli("show", str(job_id)).stdout
    bench.cancel(job_id, grace_s=0)
    assert bench.until(job_id)["report"] == seen["report"], "also when it has ended"
    assert bench.jobs("finished")[0]["report"] == seen["report"]


def test_numbers_are_parsed_as_written() -> None:
    assert report.read(("a=1", "b=-2.5e-3", "lr/head=+3")) == {"a": 1, "b": -0.0025, "lr/head": 3}
    assert isinstance(report.read(("a=1",))["a"], int)
    with pytest.raises(UserError):
        report.read(("a b=1",))


# -- help, man page --


def test_every_help_topic_fits_on_a_screen_or_two(bench: Bench) -> None:
    for name in help_topics.TOPICS:
        shown = bench.cli("help", name).stdout
        assert pages.topic(name) in shown
        # That of the settings is a list of all of them.
        assert len(pages.topic(name).splitlines()) <= (100 if name == "config" else 60)
        assert all(len(line) <= pages.WIDTH for line in pages.topic(name).splitlines())
    assert "Usage: dibs gpus" in bench.cli("help", "gpus").stdout, "a verb and a topic of one name are both shown"
    assert not bench.home.exists()


def test_help_topics_name_only_what_exists() -> None:
    every = {
        name for verb in cli.VERBS for option in cli.load(verb).OPTIONS for name in (*option.names, *option.habits)
    }
    for name in help_topics.TOPICS:
        text = pages.topic(name)
        assert {f"--{word}" for word in re.findall(r"(?<=[ (`])--([a-z-]+)", text)} - FROM_OTHERS <= every
        assert {*re.findall(r"\bdibs ([a-z]+)\b", text)} - PROSE <= {*cli.VERBS, *cli.ALIASES}


#: Options of other programs, and words that follow "dibs" in sentences.
FROM_OTHERS = {"--wrap", "--gres"}
PROSE = {"itself", "is", "to", "sets", "keeps", "or"}


def test_the_man_page_has_every_verb_option_topic_and_example() -> None:
    page = (ROOT / "src" / "man" / "dibs.1").read_text().replace("\\-", "-").replace("\\e", "\\")
    for name in cli.VERBS:
        verb = cli.load(name)
        part = page.partition(f".SS dibs {name}\n")[2].partition("\n.S")[0]
        assert verb.SUMMARY in part
        assert verb.EXAMPLES, f"{name} has no example"
        for option in verb.OPTIONS:
            assert f"\\fB{pages.named(option)}\\fR\n{pages.explained(option)}" in part
        for example in verb.EXAMPLES:
            assert f"\n{example}\n" in part
    for name in help_topics.TOPICS:
        assert f".SH {name.upper().replace('-', ' ')}\n" in page


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_man_renders_the_page_without_warnings() -> None:
    command = ["man", "--warnings", "-l", str(ROOT / "src" / "man" / "dibs.1")]
    environ = os.environ | {"MANWIDTH": "80", "MANROFFOPT": "-ww", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "dibs add -g 2 -n big -t 12h python train.py" in done.stdout


def test_the_wheel_installs_the_man_page() -> None:
    import tomllib

    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["shared-data"] == {"src/man/dibs.1": "share/man/man1/dibs.1"}


@pytest.mark.parametrize("name", cli.VERBS)
def test_every_verb_and_option_is_documented_with_an_example(name: str) -> None:
    verb = cli.load(name)
    assert verb.SUMMARY.endswith(".")
    assert verb.USAGE
    assert verb.EXAMPLES
    assert len(verb.SUMMARY) <= 100
    assert any(re.search(rf"\bdibs( {name}\b|$)|\bdibs --{name}|\b{alias}\b", each) for each in verb.EXAMPLES
               for alias in [*(a for a, target in cli.ALIASES.items() if target == name), name])  # fmt: skip
    for option in verb.OPTIONS:
        assert option.help.endswith(".")
        assert option.kind is None or option.metavar


# -- completion --


def told(*typed: str) -> completion.Next:
    """Return the completions, with two jobs and two GPUs available."""
    jobs = [
        {"id": 11, "name": "vit", "state": "running", "project": "p", "tags": ["t"]},
        {"id": 12, "name": "has blank", "state": "queued", "project": "p", "tags": []},
    ]
    return completion.complete(
        typed, lambda: {"jobs": jobs, "gpus": [{"index": 0, "name": "A"}, {"index": 1, "name": "B"}]}
    )


def words(*typed: str) -> list[str]:
    """Return the words that could follow."""
    return list(told(*typed).words)


def test_verbs_and_options_are_completed_from_the_tables() -> None:
    assert words("") == [*cli.VERBS]
    assert words() == [*cli.VERBS]
    for name in cli.VERBS:
        assert words(name[:-1])
        table = (*cli.load(name).OPTIONS, *options.COMMON)
        assert words(name, "-") == [option.names[-1] for option in table]
    assert words("nonsense", "") == []
    assert words("submit", "--gpu-t") == ["--gpu-type"]
    assert words("--debug", "stat") == ["status"]
    assert words("--d") == ["--debug"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["show", "1"], ["12", "11"]),
        (["show", "name:"], ["name:vit"]),
        (["show", "project:"], ["project:p"]),
        (["cancel", "tag:"], ["tag:t"]),
        (["show", "11", "fail"], ["failed"]),
        (["add", "--after", "1"], ["12", "11"]),
        (["add", "--gpu-ids", ""], ["0", "1"]),
        (["add", "--gpu-ids", "0,"], ["0,1"]),
        (["add", "--visible", ""], ["uuid", "index"]),
        (["status", "--color", "a"], ["auto", "always"]),
        (["status", "--color=a"], ["--color=auto", "--color=always"]),
        (["--color", "never", "sho"], ["show"]),
        (["daemon", "st"], ["start", "stop", "status"]),
        (["config", "gr"], ["grace"]),
        (["help", "sel"], ["selectors"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["completion", "bash", ""], []),
        (["wait", "--", "1"], ["12", "11"]),
        (["add", "--time", ""], []),
    ],
    ids=str,
)
def test_values_are_completed_by_their_kind(typed: list[str], expected: list[str]) -> None:
    assert words(*typed) == expected


@pytest.mark.parametrize(
    ("typed", "by_shell", "begins"),
    [
        (["add", "-C", ""], "folders", 0),
        (["add", "-o", ""], "files", 0),
        (["add", "--file", ""], "files", 0),
        (["add", ""], "command", 1),
        (["add", "-g", "2", "pyth"], "command", 3),
        (["add", "-g", "2", "python", "tr"], "command", 3),
        (["--debug", "run", "python", "--"], "command", 2),
        (["lease", "-g", "1", "--", "pyth"], "command", 4),
    ],
    ids=str,
)
def test_files_and_commands_are_completed_by_the_shell(typed: list[str], by_shell: str, begins: int) -> None:
    found = told(*typed)
    assert (found.by_shell, found.begins, found.words) == (by_shell, begins, {})


def test_completion_prints_no_errors_and_starts_no_daemon(bench: Bench) -> None:
    done = bench.cli("completion", "--words", "--", "show", "")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nfailed\t" in done.stdout
    assert not bench.home.exists()
    assert bench.cli("completion", "--words", "--", "add", "-C", "").stdout == "\tfolders\n"
    broken = bench.cli("completion", "--words", "--", "show", "", environ={"DIBS_HOME": "relative"})
    assert (broken.returncode, broken.stderr) == (0, "")
    bench.add("true", name="e\x1bvil")
    shown = bench.cli("completion", "--words", "--", "show", "").stdout
    assert "\x1b" not in shown
    assert shown.startswith("1\t")


def on_path(bench: Bench) -> dict[str, str]:
    """Return an environment in which `dibs` is a program."""
    folder = bench.folder / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / "dibs"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m dibs "$@"\n')
    script.chmod(0o755)
    return bench.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm", "HOME": str(bench.folder)}


def ask_bash(bench: Bench, line: str) -> list[str]:
    """Return what bash would offer after `line`."""
    program = (
        'eval "$(dibs completion bash)"; COMP_LINE=$1; COMP_POINT=${#1}; compopt() { :; }\n'
        'read -ra COMP_WORDS <<<"$1"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _dibs; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", line],
        env=on_path(bench), cwd=bench.folder, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes(bench: Bench) -> None:
    bench.add("true", name="vit")
    (bench.folder / "some-folder").mkdir()
    assert ask_bash(bench, "dibs sho") == ["show"]
    assert ask_bash(bench, "dibs show ")[0] == "1"
    assert ask_bash(bench, "dibs add --gpu-ids 0,") == ["0,1", "0,2", "0,3"]
    assert ask_bash(bench, "dibs add --pri") == ["--priority"]
    # Colons break words in bash: what stands before one is already on the line.
    assert ask_bash(bench, "dibs show name:v") == ["vit"]
    assert ask_bash(bench, "dibs status --color=n") == ["never"]
    assert ask_bash(bench, "dibs add -C some-") == ["some-folder"]
    assert "some-folder" in ask_bash(bench, "dibs add cat some-")
    assert "dibs" in ask_bash(bench, "dibs add dib")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes(bench: Bench) -> None:
    bench.add("true", name="vit")
    (bench.folder / "some-folder").mkdir()

    def ask(line: str) -> list[str]:
        program = "dibs completion fish | source; complete -C $argv[1]"
        done = subprocess.run(
            ["fish", "--no-config", "-c", program, line],
            env=on_path(bench), cwd=bench.folder, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return [row.partition("\t")[0] for row in done.stdout.splitlines()]

    assert ask("dibs sho") == ["show"]
    assert ask("dibs show ")[0] == "1"
    assert ask("dibs show name:v") == ["name:vit"]
    assert ask("dibs add --pri") == ["--priority"]
    assert ask("dibs add -C some-") == ["some-folder/"]
    assert "some-folder/" in ask("dibs add cat some-")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes(bench: Bench) -> None:
    """Through a real line editor on a terminal: what Tab inserts is what users get."""
    bench.add("true", name="vit")
    environ = on_path(bench)
    (bench.folder / ".zshrc").write_text(
        'PS1="ready> "; autoload -Uz compinit; compinit -u -d "$HOME/dump"; eval "$(dibs completion zsh)"\n'
    )
    zsh = str(shutil.which("zsh"))
    with Terminal(bench, program=(zsh, "-i"), **environ | {"ZDOTDIR": str(bench.folder), "TERM": "dumb"}) as person:
        for typed, added in (("dibs sho", "w"), ("dibs add --prio", "rity"), ("dibs show name:", "vit")):
            person.until("ready> ")
            person.type(f"{typed}\t")
            person.until(f"{typed}{added}")
            person.type("\x15echo seen-$((40 + 2))\n")
            person.until("seen-42")
            person.forget()
            person.type("\n")
        person.type("exit\n")
        person.end()


def test_completion_is_installed_where_the_shell_searches(bench: Bench) -> None:
    environ = {"HOME": str(bench.folder), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    for shell, path in (
        ("bash", ".local/share/bash-completion/completions/dibs"),
        ("zsh", ".local/share/zsh/site-functions/_dibs"),
        ("fish", ".config/fish/completions/dibs.fish"),
    ):
        done = bench.cli("completion", shell, "--install", environ=environ)
        assert (done.returncode, done.stdout) == (0, f"{bench.folder / path}\n")
        assert (bench.folder / path).read_text() == completion.script(shell) == bench.cli("completion", shell).stdout
    (bench.folder / "file").touch()
    refused = bench.cli(
        "completion", "bash", "--install", environ={"BASH_COMPLETION_USER_DIR": str(bench.folder / "file")}
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("dibs: cannot write ")

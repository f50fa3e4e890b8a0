"""The documents are correct: what they name exists, what exists is named, and generated pages are up to date."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

from dibs import errors
from dibs.cli import main as cli
from dibs.model import lifecycle
from dibs.python_api import keywords, submission
from dibs.submission import job_options, options
from dibs.system import settings
from dibs.version import __version__

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("compat/*.md"), *ROOT.glob("plugins/*/*.md")])
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == "")

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page_id(path: Path) -> str:
    """Return the name of a page in test ids."""
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def pages_from_tables() -> ModuleType:
    """Return `scripts/pages.py`, which writes pages from the tables in the code."""
    return script_module("pages")


def script_module(name: str) -> ModuleType:
    """Return a module of the folder `scripts`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_links_between_pages_are_valid(path: Path) -> None:
    broken = [target for target in LINK.findall(without_code(path.read_text())) if not _leads_somewhere(path, target)]
    assert not broken


def _leads_somewhere(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    file, _, anchor = target.partition("#")
    goal = (page.parent / file) if file else page
    return goal.exists() and (not anchor or anchor in _anchors(goal))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "name",
    [
        *("lifecycle", "settings", "verbs", "topics", "errors", "man", "client-types", "page-types"),
        *("picture-life", "picture-parts", "picture-sharing"),
    ],
)
def test_generated_pages_are_up_to_date(name: str) -> None:
    path, page = pages_from_tables().PAGES[name]
    assert path.read_text() == page(), "run scripts/write-docs"


def test_the_picture_of_the_speed_shows_the_stored_figures() -> None:
    script = script_module("speed_picture")
    assert script.PICTURE.read_text() == script.draw(json.loads(script.FIGURES.read_text())), (
        "run scripts/picture-speed"
    )


def test_the_picture_of_the_speed_takes_the_figures_of_a_run_of_the_benchmark() -> None:
    script = script_module("speed_picture")
    series = [
        {"part": "throughput", "subject": "dibs", "measure": "jobs/s", "unit": "", "median": 801.5, "values": [801.5]},
        {"part": "gap", "subject": "dibs", "measure": "p50", "unit": "ms", "median": 2.25, "values": [2.25]},
        {"part": "gap", "subject": "dibs", "measure": "p99", "unit": "ms", "median": 77.0, "values": [77.0]},
    ]
    run = {
        "taken_at": "2026-11-18T10:00:00+00:00",
        "machine": {"cores": 2},
        "sizes": {"rounds": 5},
        "versions": {"dibs": "0.2.0"},
        "series": series,
    }
    picture = script.draw(script.figures(run))
    for text in (">802<", ">2.25<", "dibs 0.2.0, 2 cores, medians of 5 rounds of scripts/bench, 2026-11-18"):
        assert text in picture
    assert ">77<" not in picture


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_is_documented(verb: str) -> None:
    page = (DOCS / "verbs.md").read_text()
    assert f"\n## dibs {verb}\n" in page or verb == "help"
    for option in cli.load(verb).OPTIONS:
        assert option.names[-1] in page


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_documented(setting: settings.Setting) -> None:
    rows = [
        line for line in (DOCS / "settings.md").read_text().splitlines() if line.startswith(f"| `{setting.name}` |")
    ]
    assert len(rows) == 1
    assert setting.meaning in rows[0]
    assert f"`{setting.variable}`" in rows[0]
    assert setting.default in rows[0]


@pytest.mark.parametrize("error", [kind for kind in errors.KINDS if kind != "error"])
def test_every_kind_of_error_is_documented(error: str) -> None:
    assert f"| `{error}` | {errors.KINDS[error].exit_code} |" in (DOCS / "errors.md").read_text()


def test_the_drawing_of_the_states_has_every_transition() -> None:
    picture = pages_from_tables().PAGES["picture-life"][1]()
    for (before, _), after in lifecycle.TRANSITIONS.items():
        assert f">{before.value}</text>" in picture
        assert f">{after.value}</text>" in picture


def test_a_transition_without_an_arrow_in_the_drawing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_module("diagrams")
    monkeypatch.delitem(script.LIFE, ("running", "paused"))
    with pytest.raises(AssertionError, match="paused"):
        script.life_of_a_job()


def test_every_decision_is_listed_and_complete() -> None:
    index = (DECISIONS / "README.md").read_text()
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert len({path.name[:3] for path in pages}) == len(pages)
    for path in pages:
        number = path.name.partition("-")[0]
        assert f"[{number}]({path.name})" in index
        text = path.read_text()
        assert text.startswith(f"# {number} ")
        for part in ("**Context.**", "**Choice.**", "**What we gave up.**"):
            assert part in text


def test_architecture_names_every_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    modules = [path.stem for path in (ROOT / "src" / "dibs").glob("*.py") if path.stem.strip("_") == path.stem]
    missing = [name for name in modules if name != "version" and f"`{name}`" not in page]
    assert not missing


def test_architecture_stays_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/page.md"])
def test_every_file_named_in_a_guide_exists(page: str) -> None:
    named = re.findall(r"`((?:src|tests|scripts|docs)/[\w./-]+)`", (ROOT / page).read_text())
    # NAME, PACKAGE and MODULE are placeholders for the reader.
    real = [path for path in named if not re.search("NAME|PACKAGE|MODULE", path)]
    assert [path for path in real if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("folder", ["compat", "plugins/hydra-dibs-launcher", "plugins/submitit-dibs"])
def test_all_distributions_have_the_same_version(folder: str) -> None:
    other = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert other["name"] == {"compat": "dibs-compat"}.get(folder, Path(folder).name)
    assert other["version"] == __version__
    assert f"dibs=={__version__}" in other["dependencies"]


def test_the_changelog_has_this_version() -> None:
    assert f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=page_id)
def test_scripts_are_plain_sh(path: Path) -> None:
    """They run without bash, and their head says what they do."""
    lines = path.read_text().splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[1].startswith("# ")
    assert os.access(path, os.X_OK)
    subprocess.run(["/bin/sh", "-n", path], check=True)


def test_ci_runs_all_tests() -> None:
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert "exec scripts/test" in run.read_text()
    assert 'CI="${CI:-true}"' in run.read_text()


#: Paths that exist on one machine only: where a project happened to be, or somebody's home.
SOMEBODYS_PATHS = re.compile("|".join(("/wo" + "rk/", "/ro" + r"ot/(?!\.\.\.)", "/ho" + r"me/[a-z]")))


@pytest.mark.parametrize("path", [*PAGES, *SCRIPTS, ROOT / "pyproject.toml"], ids=page_id)
def test_no_file_names_a_path_of_a_particular_machine(path: Path) -> None:
    found = [line for line in path.read_text().splitlines() if SOMEBODYS_PATHS.search(line)]
    assert not found


@pytest.mark.parametrize("option", [each for each in submission.OPTIONS if each not in keywords.SHELL_ONLY])
def test_every_option_has_a_typed_keyword(option: options.Option[object]) -> None:
    """Every option of a job has a keyword in Python; those that change the result are in the overloads."""
    special = {job_options.ARRAY, job_options.REPEAT, job_options.DRY_RUN}
    assert option in special or keywords.name(option) in get_type_hints(keywords.Options)

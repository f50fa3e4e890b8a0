"""The clusters of the settings: tables with names, which are set key by key and may be incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs.errors import UserError
from dibs.system import settings
from dibs.system.configuration import entries
from dibs.system.configuration import file as settings_file

ENVIRON = {"HOME": "/proc/nonexistent"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def load(file: Path, site: Path = Path("/proc/nonexistent")) -> settings.Settings:
    return settings.load({"DIBS_CONFIG": str(file), "HOME": "/proc/nonexistent"}, site)


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def put(file: Path, name: str, text: str) -> None:
    entry = entries.entry(name)
    assert entry is not None
    settings_file.set_value(file, entry, text, ENVIRON)


def test_a_cluster_is_a_table_with_a_name(file: Path) -> None:
    write(file, '[engines.lab]\nkind = "slurm"\nshared = "/nfs/ada"\noptions = "-p gpu"\n')
    lab = load(file).engines["lab"]
    assert (lab.name, lab.kind, lab.shared, lab.options, lab.problem) == (
        "lab",
        "slurm",
        Path("/nfs/ada"),
        "-p gpu",
        None,
    )
    assert load(file).sources["engines.lab"] == str(file)


def test_keys_are_set_and_unset_one_by_one_and_comments_stay(file: Path) -> None:
    write(file, "# mine\ngrace = '5s'\n")
    put(file, "engines.lab.kind", "slurm")
    assert load(file).engines["lab"].problem == "engines.lab.shared: expected a folder that all nodes see, got nothing"
    put(file, "engines.lab.shared", "/nfs/ada")
    put(file, "engines.lab.max_sent", "5")
    assert load(file).engines["lab"].problem is None
    assert [entry.name for entry in entries.entries(load(file))] == [
        "engines.lab.kind", "engines.lab.shared", "engines.lab.max_sent",
    ]  # fmt: skip
    for name in ("kind", "shared", "max_sent"):
        entry = entries.entry(f"engines.lab.{name}")
        assert entry is not None
        assert settings_file.unset(file, entry, ENVIRON)
        assert not settings_file.unset(file, entry, ENVIRON)
    assert load(file).engines == {}
    assert file.read_text().startswith("# mine\ngrace = '5s'\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[engines.lab]\nkind = "pbs"', 'engines.lab.kind: expected "slurm" or "ray", got "pbs"'),
        ('[engines.lab]\nshare = "/x"', 'there is no setting "share" in [engines.NAME]. Did you mean shared?'),
        ('[engines.lab]\nshared = "x"', 'expected an absolute path, got "x"'),
        ('[engines.local]\nkind = "slurm"', 'other than local, got "local"'),
        ('[engines."a b"]\nkind = "slurm"', 'got "a b"'),
        ("engines = 3", "expected a table such as [engines.lab]"),
        ("[engines]\nlab = 3", "expected a table [engines.lab]"),
        ("[engines.lab]\nmax_sent = 0", "engines.lab.max_sent: expected a whole number from 1 up, got 0"),
    ],
)
def test_a_bad_table_is_refused_in_one_line_that_names_the_file(file: Path, text: str, words: str) -> None:
    write(file, text)
    with pytest.raises(UserError) as raised:
        load(file)
    assert words in raised.value.line()
    assert str(file) in raised.value.line()


def test_a_value_that_makes_the_file_invalid_is_not_written(file: Path) -> None:
    put(file, "engines.lab.kind", "slurm")
    before = file.read_text()
    with pytest.raises(UserError):
        put(file, "engines.lab.kind", "pbs")
    with pytest.raises(UserError, match=r"expected engines.NAME.KEY"):
        entries.entry("engines.lab")
    with pytest.raises(UserError, match=r"expected engines.NAME.KEY"):
        entries.entry("engines.lab.nothing")
    assert file.read_text() == before


def test_a_users_cluster_replaces_that_of_the_machine_and_keeps_the_others(file: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    write(site, '[engines.lab]\nkind = "slurm"\n[engines.uni]\nkind = "slurm"\n')
    write(file, '[engines.lab]\nkind = "ray"\n')
    found = load(file, site)
    assert {name: engine.kind for name, engine in found.engines.items()} == {"lab": "ray", "uni": "slurm"}
    assert found.sources["engines.uni"] == str(site)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://127.0.0.1:8265", None),
        ("http://[::1]:8265", None),
        # Whether there is a token is known when it is used: it may be in a variable.
        ("https://ray.example.org:443", None),
        ("10.0.0.7:8265", "address: expected http://HOST:PORT"),
        ("http://host:99999999", "address: expected http://HOST:PORT"),
        ("", "address: expected http://HOST:PORT"),
    ],
)
def test_ray_needs_an_address(file: Path, address: str, problem: str | None) -> None:
    write(file, f'[engines.big]\nkind = "ray"\nshared = "/nfs"\naddress = "{address}"\n')
    found = load(file).engines["big"].problem
    assert found is None if problem is None else found is not None and problem in found


def test_the_default_engine_is_that_of_the_project_then_of_the_user(file: Path) -> None:
    write(file, 'engine = "lab"\n[projects.big]\nengine = "uni"\n')
    found = load(file)
    assert (found.engine_for("big"), found.engine_for("default")) == ("uni", "lab")
    assert settings.Settings().engine_for("big") == "local"


def test_a_running_daemon_keeps_its_clusters(file: Path) -> None:
    running = settings.Settings()
    running.sources = {setting.name: "default" for setting in settings.SETTINGS}
    write(file, '[engines.lab]\nkind = "slurm"\n[projects.x]\nengine = "lab"\n')
    fresh = load(file)
    fresh.shell = running.shell
    assert running.adopt(fresh) == ["engines"]
    assert running.engines == {}
    assert running.engine_for("x") == "lab"

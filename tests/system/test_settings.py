"""Every setting: defaults, files, environment, and errors that name the source."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import errors
from dibs.system import settings
from dibs.system.configuration.kinds import Bytes
from dibs.system.settings import SETTINGS, Settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


class Place:
    """A site file, a user's file and an environment, all empty."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "etc" / "dibs" / "config.toml"
        self.user = folder / "home" / ".config" / "dibs" / "config.toml"
        self.environ = {"HOME": str(folder / "home"), "PATH": ""}
        for file in (self.site, self.user):
            file.parent.mkdir(parents=True)

    def write(self, file: Path, text: str) -> None:
        file.write_text(text)
        file.chmod(0o600)

    def load(self, **environ: str) -> Settings:
        return settings.load({**self.environ, **environ}, self.site)

    def error(self, **environ: str) -> str:
        with pytest.raises(errors.UserError) as caught:
            self.load(**environ)
        return caught.value.line()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


# --- the table ---


def test_every_field_has_a_row_and_every_row_a_field():
    fields = [
        field.name
        for field in dataclasses.fields(Settings)
        if field.name not in ("sources", "rules", *(table.name for table in settings.TABLES))
    ]
    assert [setting.name for setting in SETTINGS] == fields


def test_every_variable_is_named_after_its_setting():
    assert all(setting.variable == f"DIBS_{setting.name.upper()}" for setting in SETTINGS)


def test_every_description_is_a_sentence():
    assert all(setting.meaning[0].isupper() and setting.meaning.endswith(".") for setting in SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_default_in_the_table_is_the_default_in_the_field(place, setting):
    """The text in the table, written into a file, gives the same value as no file."""
    if not setting.is_in_files or setting.name in ("cpu_slots", "shell", "max_gpus", "keep_for"):
        assert setting.default == ""
        return
    is_bare = setting.default.startswith("[") or setting.default.isdigit() or setting.default in ("true", "false")
    text = setting.default if is_bare else f'"{setting.default}"'
    place.write(place.site if setting.is_roots else place.user, f"{setting.name} = {text}")
    assert place.load() == Settings(shell="/bin/sh")


# --- sources ---


def test_without_files_and_variables_there_are_defaults(place):
    found = place.load()
    assert found == Settings(shell="/bin/sh", cpu_slots=len(os.sched_getaffinity(0)))
    assert found.sources == dict.fromkeys((setting.name for setting in SETTINGS), "default")


def test_the_user_overrides_the_site_and_the_environment_overrides_both(place):
    place.write(place.site, 'devices = "0"\nvisible = "index"\ngrace = "10s"')
    place.write(place.user, 'devices = "1"\nvisible = "uuid"')
    found = place.load(DIBS_DEVICES="2")
    assert (found.devices, found.visible, found.grace) == ("2", "uuid", 10.0)
    assert found.sources["devices"] == "DIBS_DEVICES"
    assert found.sources["visible"] == str(place.user)
    assert found.sources["grace"] == str(place.site)
    assert found.sources["files"] == "default"


def test_the_user_can_reset_a_value_of_the_site(place):
    place.write(place.site, 'devices = "0"\nfiles = "/data"')
    place.write(place.user, 'devices = ""\nfiles = ""')
    found = place.load()
    assert (found.devices, found.files) == ("", None)


def test_dibs_config_names_another_file(place, tmp_path):
    place.write(place.user, 'devices = "1"')
    place.write(tmp_path / "other.toml", 'visible = "index"')
    found = place.load(DIBS_CONFIG=str(tmp_path / "other.toml"))
    assert (found.devices, found.visible) == ("", "index")


def test_dibs_config_must_exist(place, tmp_path):
    assert f"DIBS_CONFIG expected a file, but {tmp_path}/no.toml does not exist" in place.error(
        DIBS_CONFIG=f"{tmp_path}/no.toml"
    )


def test_an_empty_variable_counts_as_unset(place):
    place.write(place.user, 'devices = "1"')
    found = place.load(DIBS_DEVICES="", DIBS_GRACE="", DIBS_CONFIG="")
    assert (found.devices, found.grace) == ("1", 30.0)


def test_every_setting_can_come_from_the_environment(place):
    found = place.load(
        DIBS_DEVICES="fake:4",
        DIBS_FILES="~/runs",
        DIBS_LEASE_DIR="/tmp/leases",
        DIBS_CPU_SLOTS="3",
        DIBS_SHELL="zsh",
        DIBS_VISIBLE="index",
        DIBS_GRACE="1m30s",
        DIBS_COLLECT_FOR="00:30:00",
        DIBS_ASSUMED_TIME="12h",
        DIBS_PASS_FOR="2d",
        DIBS_MAX_GPUS="4",
        DIBS_KEEP_FREE="1",
        DIBS_FAIR_HALF_LIFE="1d",
        DIBS_FAIR_PROJECTS="true",
        DIBS_RESERVE_UNUSED_FOR="5m",
        DIBS_EVICTABLE="auto",
        DIBS_EVICT_MIN_RUN="5m",
        DIBS_EVICT_GRACE="2m",
        DIBS_MAX_EVICTIONS="3",
        DIBS_EVICTABLE_WAIT="7d",
        DIBS_IDLE_AFTER="10m",
        DIBS_MAX_JOBS_PER_GPU="6",
        DIBS_KEEP_FOR="90d",
        DIBS_KEEP_JOBS="500",
        DIBS_ENV_EXCLUDE="AWS_*, WANDB_API_KEY,",
        DIBS_NOTIFY="notify-send $DIBS_TEXT",
        DIBS_FOREIGN_MEMORY="2G",
        DIBS_FOREIGN_PROCESS="1M",
        DIBS_FOREIGN_IGNORE="0,GPU-a",
        DIBS_NVML_LIBRARY="/opt/libnvidia-ml.so.1",
        DIBS_WEB_PORT="8080",
        DIBS_WEB_BIND="10.0.0.5",
        DIBS_WEB_NAMES="gpu1.example.org,gpu1",
        DIBS_WEB_CERT="/opt/cert.pem",
        DIBS_WEB_KEY="/opt/key.pem",
        DIBS_STATUS_SOCKET="/srv/dibs/status.sock",
        DIBS_COMMAND_SERVER="false",
        DIBS_PREPARED_FOLDERS="64",
        DIBS_ENGINE="lab",
    )
    assert found == Settings(
        devices="fake:4",
        files=Path(place.environ["HOME"]) / "runs",
        lease_dir=Path("/tmp/leases"),
        cpu_slots=3,
        shell="zsh",
        visible="index",
        grace=90.0,
        collect_for=1800.0,
        assumed_time=43200.0,
        pass_for=172800.0,
        max_gpus=4,
        keep_free=1,
        fair_half_life=86400.0,
        fair_projects=True,
        reserve_unused_for=300.0,
        evictable="auto",
        evict_min_run=300.0,
        evict_grace=120.0,
        max_evictions=3,
        evictable_wait=7 * 86400.0,
        idle_after=600.0,
        max_jobs_per_gpu=6,
        keep_for=90 * 86400.0,
        keep_jobs=500,
        env_exclude=("AWS_*", "WANDB_API_KEY"),
        notify="notify-send $DIBS_TEXT",
        foreign_memory=Bytes(2**31),
        foreign_process=Bytes(2**20),
        foreign_ignore=("0", "GPU-a"),
        nvml_library=Path("/opt/libnvidia-ml.so.1"),
        web_port=8080,
        web_bind="10.0.0.5",
        web_names=("gpu1.example.org", "gpu1"),
        web_cert=Path("/opt/cert.pem"),
        web_key=Path("/opt/key.pem"),
        status_socket=Path("/srv/dibs/status.sock"),
        command_server=False,
        prepared_folders=64,
        engine="lab",
    )
    own = [setting for setting in SETTINGS if not setting.is_roots]
    assert [found.sources[setting.name] for setting in own] == [setting.variable for setting in own]


def test_the_loan_of_idle_gpus_is_for_root_to_allow(place):
    text = 'idle_gpus = "evictable"\n'
    place.write(place.site, text)
    assert place.load().idle_gpus == "evictable"
    with pytest.raises(errors.UserError, match=r"DIBS_IDLE_GPUS: idle_gpus can be set only in /etc/dibs/config\.toml"):
        place.load(DIBS_IDLE_GPUS="evictable")
    place.write(place.user, text)
    with pytest.raises(errors.UserError, match=r"line 1: idle_gpus can be set only in /etc/dibs/config\.toml"):
        place.load()


def test_every_setting_but_the_lease_folder_can_come_from_a_file(place):
    place.write(
        place.user,
        'devices = "0,1"\nfiles = "~/runs"\ncpu_slots = 3\nshell = "zsh"\nvisible = "index"\ngrace = "90s"\n'
        'collect_for = "2h"\nenv_exclude = ["AWS_*"]\nnvml_library = "/opt/nvml.so"\n',
    )
    assert place.load() == Settings(
        devices="0,1",
        files=Path(place.environ["HOME"]) / "runs",
        cpu_slots=3,
        shell="zsh",
        visible="index",
        grace=90.0,
        collect_for=7200.0,
        env_exclude=("AWS_*",),
        nvml_library=Path("/opt/nvml.so"),
    )


def test_bash_is_the_shell_where_there_is_one(place, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").write_text("")
    path = f"relative:{tmp_path}/none:{tmp_path}/bin"
    assert place.load(PATH=path).shell == "/bin/sh"
    (tmp_path / "bin" / "bash").chmod(0o755)
    assert place.load(PATH=path).shell == f"{tmp_path}/bin/bash"


def test_missing_files_are_no_error(place):
    for file in (place.site, place.user):
        file.parent.rmdir()
        file.parent.write_text("not even a folder")
    assert place.load(DIBS_DEVICES="none").devices == "none"


# --- errors ---


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("devices = 0", "devices: expected a text, got 0."),
        ('files = "runs"', 'files: expected an absolute path, got "runs".'),
        ("files = 7", "files: expected an absolute path, got 7."),
        ('files = "/a\\u0000b"', "files: expected an absolute path"),
        ("cpu_slots = 0", "cpu_slots: expected a whole number from 1 up, got 0."),
        ("cpu_slots = true", "cpu_slots: expected a whole number from 1 up, got true."),
        ('cpu_slots = "4"', 'cpu_slots: expected a whole number from 1 up, got "4".'),
        ('shell = ""', 'shell: expected a non-empty text, got "".'),
        ('visible = "name"', 'visible: expected "uuid" or "index", got "name".'),
        ("visible = []", 'visible: expected "uuid" or "index", got [].'),
        ("grace = 30", 'grace: expected a time such as 90m, 2h or 1d12h, got "30": write 30m or 30s'),
        ("grace = 07:32:00", "grace: expected a time such as 90m, 2h or 1d12h, got 07:32:00."),
        ('grace = "soon"', 'grace: expected a time such as 90m, 2h or 1d12h (or HH:MM:SS), got "soon"'),
        ("grace = false", "grace: expected a time such as 90m, 2h or 1d12h, got false."),
        ('env_exclude = "AWS_*"', "env_exclude: expected a list of names"),
        ("env_exclude = [1]", "env_exclude: expected a list of names"),
        ("[grace]\nx = 1", "grace: expected a time such as 90m, 2h or 1d12h, got {'x': 1}."),
        ('lease_dir = "/x"', "lease_dir cannot be set in a file. Set DIBS_LEASE_DIR instead."),
        ("device = 1", 'there is no setting "device". Did you mean devices?'),
        ("colour = 1", 'there is no setting "colour". The settings are: devices, files, '),
        ("devices", "expected TOML such as devices = "),
        ("devices = 1\ndevices = 2", "expected TOML such as devices = "),
    ],
)
def test_an_invalid_line_is_reported_with_its_file(place, line, words):
    for file in (place.site, place.user):
        place.write(file, f"# a comment\n{line}")
        message = place.error()
        assert message.startswith((f"{file}, line 2: ", f"{file}, line 3: "))
        assert words in message
        file.unlink()


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("DIBS_CPU_SLOTS", "four", 'DIBS_CPU_SLOTS: expected a whole number from 1 up, got "four".'),
        ("DIBS_CPU_SLOTS", "-1", 'DIBS_CPU_SLOTS: expected a whole number from 1 up, got "-1".'),
        ("DIBS_CPU_SLOTS", "9" * 5000, "DIBS_CPU_SLOTS: expected a whole number from 1 up"),
        ("DIBS_GRACE", "30", 'DIBS_GRACE: expected a time such as 90m, 2h or 1d12h, got "30": write 30m or 30s'),
        ("DIBS_VISIBLE", "UUID", 'DIBS_VISIBLE: expected "uuid" or "index", got "UUID".'),
        ("DIBS_FILES", "x", 'DIBS_FILES: expected an absolute path, got "x".'),
        ("DIBS_CONFIG", "x", 'DIBS_CONFIG: expected an absolute path, got "x".'),
    ],
)
def test_an_invalid_variable_is_named(place, variable, text, words):
    assert words in place.error(**{variable: text})


def test_bytes_that_are_not_utf8_are_refused_with_an_explanation(place):
    place.user.write_bytes(b"devices = '\xff'")
    place.user.chmod(0o600)
    assert "expected UTF-8 text, got other bytes at offset 11" in place.error()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused_with_the_fix(place, mode):
    place.write(place.user, 'shell = "/tmp/evil"')
    place.user.chmod(mode)
    message = place.error()
    assert f"its mode is {mode:04o}" in message
    assert message.endswith(f"Run: chmod go-w {place.user}")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400])
def test_a_file_that_others_may_only_read_is_accepted(place, mode):
    place.write(place.user, 'devices = "1"')
    place.user.chmod(mode)
    assert place.load().devices == "1"


@needs_root
def test_a_file_of_another_user_is_refused(place):
    place.write(place.user, 'shell = "/tmp/evil"')
    os.chown(place.user, 54321, -1)
    assert "expected a file of yours or of root, but it belongs to user 54321" in place.error()


def test_a_file_that_is_not_regular_is_refused_without_blocking(place):
    os.mkfifo(place.user)
    assert "expected a regular file" in place.error()
    place.user.unlink()
    place.user.mkdir()
    assert "expected a file that you can read, got: Is a directory" in place.error()


def test_a_link_is_checked_by_its_target(place, tmp_path):
    place.write(tmp_path / "dotfiles.toml", 'devices = "1"')
    place.user.symlink_to(tmp_path / "dotfiles.toml")
    assert place.load().devices == "1"
    (tmp_path / "dotfiles.toml").chmod(0o666)
    assert "its mode is 0666" in place.error()


def test_loading_without_a_file_imports_no_toml(tmp_path):
    """The command line loads the settings on every call."""
    code = (
        # What pathlib brings along is another one's: since Python 3.13 it loads pwd.
        "import sys; from pathlib import Path; before = set(sys.modules); from dibs.system import settings\n"
        f"settings.load({{'HOME': {str(tmp_path)!r}}}, Path('/proc/nonexistent'))\n"
        "print({'tomllib', 'subprocess', 'hashlib', 'difflib', 'pwd', 'json'} & set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

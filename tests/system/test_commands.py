"""A command as typed, and the arguments that are executed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.system import commands


@pytest.fixture
def programs(tmp_path):
    """A folder with one program in it."""
    program = tmp_path / "train"
    program.touch(0o755)
    (tmp_path / "notes").touch(0o644)
    return tmp_path


@pytest.mark.parametrize("command", ["python train.py", "true", " ls  -l ", "echo a,b:c@d/e_f+g", "nvcc -O3 x.cu"])
def test_a_command_of_plain_words_needs_no_shell(command):
    assert not commands.needs_shell(command)


@pytest.mark.parametrize(
    "command",
    [
        *("a | b", "a && b", "a; b", "a > f", "a < f", "(a)", "echo $HOME", "echo `date`", 'echo "a b"', "echo 'a'"),
        *("ls *.py", "ls a?", "ls [ab]", "a # b", "cd ~", "A=1 b", "a {1,2}", "! a", "a\\ b", "a\nb", "a\tb", "%1"),
        *("", "   ", "echo a\u00a0b", "echo a\u2003b", "echo a\x0bb", "echo a\x1fb", "echo a\u0085b"),
    ],
)
def test_a_command_that_a_shell_would_parse_differently_needs_one(command):
    assert commands.needs_shell(command)


@given(st.text(max_size=20))
def test_without_a_shell_a_command_is_split_at_blanks_only(command):
    assert commands.needs_shell(command) or command.split() == [word for word in command.split(" ") if word]


def test_an_argument_list_is_passed_unchanged(programs):
    argv = ("train", "a b", "$HOME", "")
    assert commands.words("for people", argv, "/bin/bash", str(programs), "/") == argv


def test_a_plain_string_runs_without_a_shell(programs):
    assert commands.words("train  --fast", None, "/bin/bash", str(programs), "/") == ("train", "--fast")


def test_a_string_with_shell_characters_is_passed_to_the_shell_whole(programs):
    assert commands.words("train > log", None, "/bin/bash", str(programs), "/") == ("/bin/bash", "-c", "train > log")


def test_a_string_whose_program_is_not_found_is_passed_to_the_shell(programs):
    assert commands.words("ulimit -c", None, "/bin/sh", str(programs), "/") == ("/bin/sh", "-c", "ulimit -c")


@pytest.mark.parametrize("command", ["echo -e x", "kill -l", "pwd"])
def test_shell_builtins_are_run_by_the_shell(programs, command):
    (programs / command.split()[0]).touch(0o755)
    assert commands.words(command, None, "/bin/sh", str(programs), "/") == ("/bin/sh", "-c", command)


@pytest.mark.parametrize(
    ("program", "is_there"),
    [("train", True), ("./train", True), ("{folder}/train", True), ("notes", False), ("./notes", False), (".", False)],
)
def test_a_program_is_found_on_the_path_or_from_the_folder(programs, program, is_there):
    assert commands.is_found(program.format(folder=programs), str(programs), str(programs)) is is_there


def test_a_program_in_the_folder_is_not_found_by_its_bare_name(programs):
    assert not commands.is_found("train", "/nowhere", str(programs))

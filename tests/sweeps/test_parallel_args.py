"""GNU parallel's form: `CMD {} ::: a b`, several `:::`, `:::+`."""

import pytest

from dibs import errors
from dibs.sweeps import parallel_args, templates
from dibs.sweeps.grid import Points


def commands(*words):
    """Return all commands of `dibs map ARGUMENTS`."""
    command, space = parallel_args.parse(words)
    writer = templates.Writer(command)
    return [writer.command(point) for point in Points(space)]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("x {} ::: a b", ["x a", "x b"]),
        ("x y ::: a b", ["x y a", "x y b"]),
        ("x {1} {2} ::: a b ::: 1 2", ["x a 1", "x a 2", "x b 1", "x b 2"]),
        ("x {2}-{1} ::: a b :::+ 1 2", ["x 1-a", "x 2-b"]),
        ("x {} ::: a b :::+ 1 2", ["x a 1", "x b 2"]),
        ("x {1}{2}{3} ::: a b :::+ 1 2 ::: p q", ["x a1p", "x a1q", "x b2p", "x b2q"]),
        ("x {} {#} ::: a b", ["x a 1", "x b 2"]),
        ("x {.} {/} {//} {/.} ::: d/e.f.gz", ["x d/e.f e.f.gz d e.f"]),
        ("x {1.} {2/} {2//} {2/.} ::: a.b ::: c/d.e", ["x a d.e c d"]),
        ("x {} ::: a a", ["x a", "x a"]),
        ("x {%} ${HOME} {{}} {a} {} ::: b", ["x {%} ${HOME} {b} {a} b"]),
        ("x {//} ::: a /b /c/ .hid", ["x .", "x /", "x /", "x ."]),
    ],
)
def test_arguments_are_placed_as_gnu_parallel_does(typed, expected):
    assert [" ".join(words) for words in commands(*typed.split())] == expected


def test_a_single_word_is_a_shell_command_with_quoted_arguments():
    assert commands("gzip {} > {#}.gz", ":::", "a b", "c") == ["gzip 'a b' > 1.gz", "gzip c > 2.gz"]
    assert commands("gzip", ":::", "a b") == ["gzip 'a b'"]


def test_several_words_are_passed_unchanged():
    assert commands("gzip", "{}", "x{}", ":::", "a b") == [("gzip", "a b", "xa b")]


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("x {}", "expected ::: and the arguments after the command, got none"),
        ("::: a", "expected a command before :::, got none"),
        ("x {} :::", "expected arguments after :::, got none"),
        ("x {} :::+ a", "expected ::: first, got :::+"),
        ("x {} ::: a b :::+ c", r"expected 2 arguments after :::\+, as many as before it, got 1"),
        ("x {3} ::: a ::: b", r"unknown argument \{3\}: there are 2 of :::"),
        (f"x {{{'9' * 5000}}} ::: a", "unknown argument .*: there is 1 of :::"),
        ("x {0} ::: a", r"unknown argument \{0\}: there is 1 of :::"),
    ],
)
def test_mismatched_arguments_are_refused(typed, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        commands(*typed.split())

"""Scripts: how they are recognized, their option lines, and their interpreter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.logs import patterns
from dibs.model import scripts


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (b"#!/bin/sh\ntrue\n", True),
        (b"#DIBS -g 2\ntrue\n", True),
        (b"# a comment\n\n#SBATCH --time=5\n", True),
        (b"true\n#SBATCH --time=5\n", False),
        (b"##SBATCH --time=5\n", False),
        (b"#SBATCHES x\n", False),
        (b"import os\n", False),
        (b"#!\x7fELF\0", False),
        (b"", False),
    ],
)
def test_a_script_is_recognized_by_its_content(body, is_one):
    assert scripts.is_script(body) is is_one


def test_option_lines_end_at_the_first_command():
    body = b"#!/bin/bash\n#SBATCH -J 'my job' --time=5 # don't\n\n# why\n#DIBS\t-g 2\n  \ntrue\n#SBATCH --mem=1\n"
    assert scripts.directives(body, "x.sh") == [
        scripts.Directive("SBATCH", 2, ("-J", "my job", "--time=5")),
        scripts.Directive("DIBS", 5, ("-g", "2")),
    ]


@pytest.mark.parametrize("line", [b"-n 'x", b"-n \xff"])
def test_the_error_about_an_invalid_line_names_it(line):
    with pytest.raises(errors.UserError, match=r"^x.sh, line 1: expected"):
        scripts.directives(b"#DIBS " + line, "x.sh")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"true\n", ("/bin/bash",)),
        (b"#!/bin/sh\n", ("/bin/sh",)),
        (b"#! /usr/bin/env python \nx", ("/usr/bin/env", "python")),
        (b"#!/usr/bin/env -S python -u", ("/usr/bin/env", "-S python -u")),
        (b"#!\n", ("/bin/bash",)),
    ],
)
def test_the_shebang_is_parsed_as_the_kernel_does(body, words):
    assert scripts.interpreter(body, "/bin/bash") == words


@pytest.mark.parametrize(
    ("words", "is_it"),
    [
        (("/usr/bin/python3",), True),
        (("/usr/bin/env", "python"), True),
        (("/usr/bin/env", "-S python3.11 -u"), True),
        (("/bin/bash",), False),
        (("/opt/python/bin/perl",), False),
    ],
)
def test_python_is_recognized_by_its_name(words, is_it):
    assert scripts.is_python(words) is is_it


@pytest.mark.parametrize("body", [b"", b" \n", b"a\0b", b"#!/bin/sh\r\ntrue\r\n", b"#" * (scripts.LONGEST_BYTES + 1)])
def test_an_invalid_script_is_refused_by_name(body):
    with pytest.raises(errors.UserError, match=r"^x\.sh "):
        scripts.check(body, "x.sh")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_script_or_refused_with_an_explanation(body):
    try:
        scripts.check(body, "x.sh")
        scripts.directives(body, "x.sh")
    except errors.UserError:
        return
    assert scripts.interpreter(body, "/bin/sh")


@pytest.mark.parametrize(
    ("name", "pattern"), [("loss", "("), ("loss", "x"), ("loss", "(a)(b)"), ("", "(x)"), ("a b", "(x)"), ("1", "(x)")]
)
def test_a_metric_needs_a_name_and_one_group(name, pattern):
    patterns.check("val/loss-2", r"(?:val )?loss: ([0-9.]+)")
    with pytest.raises(errors.UserError, match=r"^expected NAME=REGEX"):
        patterns.check(name, pattern)

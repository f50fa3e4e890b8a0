"""The list of jobs that GPUPeasy reads: which lines are jobs, and that none is lost."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.submission.esy import Entry, Malformed, parse

JOB = Entry("a", "/out/a", ("echo", "1"))

LISTS = [
    ("", []),
    ("  ;;; ;;;", []),
    (";;;;;;", []),
    ("a;;/out/a;;echo 1", [JOB]),
    ("a;;/out/a;;echo 1;;;", [JOB]),
    ("  a ;;  /out/a;;   echo    1 ;;;\n\n", [JOB]),
    ("a;;\n/out/a;;\necho\n1;;;", [JOB]),
    ("a\t;;/out/a;;echo\t1;;;", [JOB]),
    ("a;;/out/a;;echo 1;; ;;;", [JOB]),
    ("a;;/out/a;;echo 1;;;a;;/out/a;;echo 1;;;", [JOB, JOB]),
    ("a b;;/out/a b;;echo 1", [Entry("a b", "/out/a b", ("echo", "1"))]),
    ("a;;/o;;sh -c 'echo $X; exit 4'", [Entry("a", "/o", ("sh", "-c", "echo $X; exit 4"))]),
    ("a;;/o;;x 'two  blanks'", [Entry("a", "/o", ("x", "two blanks"))]),
    ("a;;/o;;x | y > z", [Entry("a", "/o", ("x", "|", "y", ">", "z"))]),
    ("NAME;;echo hi;;;", [Malformed("NAME;;echo hi")]),
    ("A;;B", [Malformed("A;;B")]),
    ("A;; ;;ls", [Malformed("A;; ;;ls")]),
    ("a;;b;;c;;d", [Malformed("a;;b;;c;;d")]),
    ("nothing", [Malformed("nothing")]),
    ("a;;/o;;echo 'x", [Malformed("a;;/o;;echo 'x", "a", "No closing quotation")]),
    ("a;;/o;;echo \\", [Malformed("a;;/o;;echo \\", "a", "No escaped character")]),
    ("bad;;;a;;/out/a;;echo 1", [Malformed("bad"), JOB]),
]


@pytest.mark.parametrize(("text", "found"), LISTS)
def test_a_list_is_parsed_into_entries_and_malformed_lines(text: str, found: list[Entry | Malformed]) -> None:
    assert parse(text) == found


WORDS = st.text(st.characters(exclude_characters=";", exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1)


@given(st.lists(st.tuples(WORDS, WORDS, st.lists(WORDS, min_size=1, max_size=4)), max_size=5))
def test_a_written_list_is_read_back(jobs: list[tuple[str, str, list[str]]]) -> None:
    text = "\n".join(f"{name};;{output};;{shlex.join(argv)};;;" for name, output, argv in jobs)
    assert parse(text) == [Entry(name, output, tuple(argv)) for name, output, argv in jobs]


@given(st.text(alphabet="ab ;;'\"\\\n", max_size=60))
def test_any_text_can_be_parsed(text: str) -> None:
    for entry in parse(text):
        assert not isinstance(entry, Entry) or (entry.name and entry.output and entry.argv)

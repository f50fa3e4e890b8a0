"""Commands with placeholders: what is replaced, what is kept, and that a shell reads the values correctly."""

import json
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dibs import errors
from dibs.sweeps import parameters, quoting, spaces, templates, values
from dibs.sweeps.grid import Point, Points
from dibs.sweeps.templates import Writer


def point(index=0, **given):
    """Build a point: `point(lr="0.1")`."""
    return Point(index, tuple(given), tuple(values.value_of_word(text) for text in given.values()))


def command(text, folder=None, index=0, **given):
    """Return the command of one point."""
    template = templates.parse(text)
    templates.check(tuple(given), template, folder)
    return Writer(template, folder).command(point(index, **given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train --lr {lr}", "train --lr 1e-5"),
        ("train --lr={lr} {lr}", "train --lr=1e-5 1e-5"),
        ("{{lr}} {lr}", "{lr} 1e-5"),
        ("{{{lr}}}", "{1e-5}"),
        ("echo ${HOME} ${lr} {lr}", "echo ${HOME} ${lr} 1e-5"),
        ("${OUT:-{lr}}", "${OUT:-1e-5}"),
        ("awk '{print $1}' {lr}", "awk '{print $1}' 1e-5"),
        ("echo {1,2} {a..c} {} {lr}", "echo {1,2} {a..c} {} 1e-5"),
        ("""run '{"opt": {"lr": {lr}}}'""", """run '{"opt": {"lr": 1e-5}}'"""),
        ("find -exec x \\{lr} {lr}", "find -exec x \\{lr} 1e-5"),
        ("100% %s {lr}", "100% %s 1e-5"),
        ("{index} {lr}", "7 1e-5"),
        ("{index:raw}{lr:raw}", "71e-5"),
        ("{lr:flag}", "--lr 1e-5"),
        ("train {args}", "train --lr=1e-5"),
        ("train {args:plain}", "train lr=1e-5"),
        ("train {args:json}", "train '{\"lr\": 1e-05}'"),
    ],
)
def test_placeholders_are_replaced_and_the_rest_is_kept(text, expected):
    assert command(text, index=7, lr="1e-5") == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--lr", "{lr}"], ("train", "--lr", "a 'b' $c")),
        (["train", "--lr={lr}", "${HOME}", "{{x}}", "'"], ("train", "--lr=a 'b' $c", "${HOME}", "{x}", "'")),
        (["train", "{lr:flag}", "{lr:raw}"], ("train", "--lr", "a 'b' $c", "a 'b' $c")),
        (["train", "{args}", "x{index}"], ("train", "--lr=a 'b' $c", "x0")),
    ],
)
def test_in_an_argument_list_values_are_inserted_unquoted(words, expected):
    assert command(words, lr="a 'b' $c") == expected


def test_a_missing_value_is_left_out():
    template = templates.parse("train {a:flag} {b:flag} x{b} '{b}' {args}")
    assert Writer(template).command(point(a="1")) == "train --a 1  x '' --a=1"
    assert Writer(templates.parse(["train", "{b}", "{b:flag}", "x={b}"])).command(point(a="1")) == ("train", "x=")


def test_booleans_can_be_flags():
    found = command("train {args:flags}", fast="true", slow="false", n="3")
    assert found == "train --fast --n=3"


def test_the_folder_of_a_run_is_a_placeholder():
    assert command("train {lr} > {dir}/log", "res ults/{lr}-{index}", 4, lr="0.1") == "train 0.1 > 'res ults/0.1-4'/log"
    writer = Writer(templates.parse("x {dir}"), "out/{lr}-{index:03}-{m}")
    assert writer.folder(point(7, lr="a/b", m="..")) == "out/a_b-007-_"
    assert writer.folder(point(7, lr="0.1")) == "out/0.1-007-"
    assert Writer(templates.parse("x {dir}")).folder(point(lr="0.1")) is None


def test_a_parameter_overrides_a_built_in_placeholder():
    made = Writer(templates.parse("{index} {dir}")).command(
        Point(3, ("index", "dir"), (values.value_of_word("x y"), values.value_of_word("d")))
    )
    assert made == "'x y' d"


@pytest.mark.parametrize(
    ("text", "names", "complaint"),
    [
        ("x {lrr}", ["lr", "bs"], r"unknown parameter \{lrr\} in the command; the parameters are \{lr\}, \{bs\}\."),
        ("x {lr}", ["lr", "bs"], r"the parameter bs is not used in the command\."),
        ("x {lr:.3f}", ["lr"], r"expected \{lr\} or \{lr:raw\} or \{lr:flag\} in the command, got \{lr:.3f\}"),
        ("x {lr} {dir}", ["lr"], r"the command uses \{dir\}, but no folder is given"),
        ("x {args:xml}", ["lr"], r"expected \{args\} or"),
        ("echo `date {lr}`", ["lr"], r"expected no \{lr\} between backticks"),
    ],
)
def test_a_command_with_unknown_or_missing_placeholders_is_refused(text, names, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        templates.check(names, templates.parse(text))


def test_the_error_suggests_similar_names():
    with pytest.raises(errors.UserError) as caught:
        templates.check(["lr"], templates.parse("x {lrr}"))
    assert caught.value.hint == "Did you mean {lr}?"


def test_a_folder_template_cannot_contain_dir_and_counts_as_use_of_a_parameter():
    with pytest.raises(errors.UserError, match=r"expected placeholders among \{lr\} \{index\}, got \"\{dir\}\""):
        templates.check(["lr"], templates.parse("x {lr}"), "{dir}")
    templates.check(["lr"], templates.parse("x {dir}"), "out/{lr}")


def test_nul_bytes_are_refused():
    with pytest.raises(errors.UserError, match="NUL"):
        command("x {a}", a="\0")
    with pytest.raises(errors.UserError, match="NUL"):
        command(["x", "{a}"], a="\0")


#: Every place of a value in a shell command; all of them print it between brackets.
PLACES = (
    "printf '[%s]' {x}",
    "printf '[%s]' ''{x}",
    "printf '[%s]' '{x}'",
    "printf '[%s]' \"{x}\"",
    "printf '[%s]' \"$(printf '%s.' {x})\"",
    "printf '[%s]' \"$(printf '%s.' \"{x}\")\"",
    "printf '[%s]' \"$(printf '%s.' \\\"'{x}')\"",
    "# don't\nprintf '[%s]' {x}",
    "printf '[%s]' a'b'\"c\"{x}\"d\"",
    "(printf '[%s]' '{x}'); : \\' \\\" {x}",
    "y=1; printf '[%s]' $y{x}",
    "y=1; printf '[%s]' \"$y{x}\"",
    ": a#b; printf '[%s]' '#'{x} # it's {x}",
    "printf '[%s]' \"it's {x}\"",
    "printf '[%s]' '\"'{x}'\"'",
)
any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
nasty = st.text("'\"$`\\!#*~{}()[];&|<>=%@ \t\n-abc01é", max_size=10)


@settings(max_examples=25)
@given(any_text | nasty)
@example("$(touch /nowhere/x)")
@example("'; exit 3; '")
@example('"; exit 3; "')
@example("")
@example("-n")
@example("a\nb\n")
def test_a_shell_reads_every_value_as_it_is(text):
    """One real shell for all places. The text around the value is found by inserting a plain word instead."""
    word = "PLAIN"
    made = [command(place, x=text) for place in PLACES]
    plain = [command(place, x=word) for place in PLACES]
    program = "printf '\\036'\n"
    found, expected = (
        subprocess.run(["sh"], input=program.join(many).encode(), capture_output=True, check=True).stdout.decode()
        for many in ([f"{one}\n" for one in made], [f"{one}\n" for one in plain])
    )
    wanted = expected.replace(word, text)
    # `$( )` removes trailing line breaks, which is why those places add a dot.
    assert found == wanted


@given(any_text | nasty)
def test_outside_quotes_quoting_equals_the_standard_library(text):
    assert shlex.split(quoting.quoted(text, quoting.Place.BARE)) == [text]


def space(*words):
    """Build a space from `-p` arguments."""
    return spaces.build([parameters.parse(each.split()) for each in words])


@pytest.mark.parametrize(
    "text",
    ["x {a} {b}", "x {b} '{a}' {{}} {a}", "x {a} {index} {b}", "x {a:raw} {b}", "x {args}", "x {b} {a} ${HOME} 100%"],
)
@pytest.mark.parametrize("more", [{}, {"is_shuffled": True}, {"sample": 3}])
def test_writing_many_commands_equals_writing_each(text, more):
    points = Points(space("a 1 x'y 3", "b=range(4)"), **more)
    writer = Writer(templates.parse(text))
    assert list(writer.lines(points)) == [writer.line(each) for each in points]


def test_argument_lists_are_quoted_as_shell_lines():
    assert Writer(templates.parse(["x", "{a}"])).line(point(a="b c")) == "x 'b c'"
    assert list(Writer(templates.parse(["x", "{a}"])).lines(Points(space("a 1 2")))) == ["x 1", "x 2"]


def test_more_values_than_the_cache_holds_are_written_correctly():
    points = Points(spaces.build([parameters.parse([f"a=range({templates.MOST_QUOTED + 5})"])]))
    writer = Writer(templates.parse("x {a}"))
    assert [writer.command(each) for each in points][-1] == f"x {templates.MOST_QUOTED + 4}"


def test_the_json_of_all_parameters_is_one_word():
    made = command("x {args:json}", a="it's", b="1e-3")
    assert json.loads(shlex.split(made)[1]) == {"a": "it's", "b": 0.001}

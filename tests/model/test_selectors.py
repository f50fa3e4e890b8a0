"""The words that select jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.errors import UserError
from dibs.model import selectors
from dibs.model.selectors import Everything, Ids, InState, Last, Like, Since


def parse(*words):
    return selectors.parse(words)


@pytest.mark.parametrize(
    ("word", "atoms"),
    [
        ("12", (Ids(((12, 12),)),)),
        ("007", (Ids(((7, 7),)),)),
        ("3-7", (Ids(((3, 7),)),)),
        ("5-5", (Ids(((5, 5),)),)),
        ("1,4,9-12", (Ids(((1, 1), (4, 4), (9, 12))),)),
        ("999999999999999999", (Ids(((10**18 - 1, 10**18 - 1),)),)),
        ("@", (Last(0),)),
        ("@~", (Last(0),)),
        ("@~0", (Last(0),)),
        ("@~1", (Last(1),)),
        ("@~20", (Last(20),)),
        ("all", (Everything(),)),
        ("held", (InState(("held",)),)),
        ("running", (InState(("running",)),)),
        ("cancelled", (InState(("cancelled",)),)),
        ("bad", (InState(("failed", "timeout", "lost")),)),
        ("finished", (InState(("done", "failed", "cancelled", "timeout", "lost")),)),
        ("unfinished", (InState(("held", "queued", "starting", "running", "paused", "stopping")),)),
        ("name:vit*", (Like("name", "vit*"),)),
        ("name:a:b", (Like("name", "a:b"),)),
        ("name:12", (Like("name", "12"),)),
        ("project:x", (Like("project", "x"),)),
        ("tag:night", (Like("tag", "night"),)),
        ("sweep:lr", (Like("sweep", "lr"),)),
        ("since:24h", (Since(86400.0),)),
        ("sweep:lr+failed", (Like("sweep", "lr"), InState(("failed",)))),
        ("1-9+name:a*+bad", (Ids(((1, 9),)), Like("name", "a*"), InState(("failed", "timeout", "lost")))),
    ],
)
def test_a_selector_means_what_the_manual_says(word, atoms):
    assert parse(word) == (atoms,)


@pytest.mark.parametrize(
    "word",
    [
        *("", " ", "+", "1+", "+1", "1++2", "-", "1-", "-1", "1-2-3", ",", "1,", ",1", "1,,2", "1 2", "1.5", "0x1"),
        *("@1", "@~x", "@~-1", "@~1.5", "@@", "@~²", "@~٣", "²", "٣", "３", "9" * 19, "@~" + "9" * 5000),
        *("1-" + "9" * 19, "9" * 5000, "5-3", "Failed", "complete", "name:", "name", ":x", "owner:x", "NAME:x"),
        *("since:", "since:24", "since:x", "all,1", "failed,1", "*", "\0"),
    ],
)
def test_an_invalid_selector_is_refused(word):
    with pytest.raises(UserError, match="expected"):
        parse(word)


def test_several_selectors_are_a_union():
    assert parse("failed", "name:a") == ((InState(("failed",)),), (Like("name", "a"),))


def test_without_a_selector_nothing_is_selected():
    assert parse() == ()


def test_ids_in_several_selectors_are_one_condition():
    assert parse("1", "5-6", "bad", "9") == ((Ids(((1, 1), (5, 6), (9, 9))),), parse("bad")[0])


def test_a_duplicate_selector_adds_nothing():
    assert parse("failed", "failed") == parse("failed")


def test_the_number_of_ids_is_not_limited():
    ((ids,),) = parse(*map(str, range(20_000)))
    assert len(ids.ranges) == 20_000


def test_too_many_other_selectors_are_refused():
    assert len(parse(*(f"name:{n}" for n in range(selectors.MOST_PARTS)))) == selectors.MOST_PARTS
    with pytest.raises(UserError, match="at most 500 selectors"):
        parse(*(f"name:{n}" for n in range(selectors.MOST_PARTS + 1)))
    with pytest.raises(UserError, match="at most 500 selectors"):
        parse("+".join(f"name:{n}" for n in range(selectors.MOST_PARTS + 1)))


def test_a_mistyped_state_gets_a_suggestion():
    with pytest.raises(UserError) as caught:
        parse("runing")
    assert caught.value.line() == (
        'expected a job such as 12, 3-7, @, failed or name:vit*, got "runing". Did you mean running?'
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("1,4-", 'expected job ids such as 1,4,9-12, got "1,4-".'),
        ("1-2-3", 'expected job ids such as 1,4,9-12, got "1-2-3".'),
        ("-5", 'expected job ids such as 1,4,9-12, got "-5".'),
        ("1,9999999999999999999", 'expected a job id, got "9999999999999999999", which is larger than any.'),
        ("owner:x", 'expected a job such as 12, 3-7, @, failed or name:vit*, got "owner:x".'),
        ("since:24", 'expected a time such as 90m, 2h or 1d12h, got "24": write 24m or 24s'),
    ],
)
def test_the_error_says_what_was_expected_and_what_came(word, message):
    with pytest.raises(UserError) as caught:
        parse(word)
    assert caught.value.message == message


def test_a_reversed_range_gets_the_correct_one_as_a_suggestion():
    with pytest.raises(UserError, match='expected the lower id first, got "7-3": write 3-7'):
        parse("7-3")


@given(
    st.lists(
        st.one_of(
            st.text(max_size=10),
            st.text("0123456789-,@~+²٣", max_size=8),
            st.builds("{}:{}".format, st.sampled_from(["name", "since", "tag", "x"]), st.text(max_size=5)),
        ),
        max_size=3,
    )
)
def test_any_text_is_parsed_or_refused_with_an_explanation(words):
    try:
        chosen = parse(*words)
    except UserError:
        return
    assert bool(chosen) is bool(words)

"""Durations and sizes as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.model import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("0s", 0),
        ("90m", 5400),
        ("2h", 7200),
        ("1d12h", 129600),
        ("1w", 604800),
        ("1h30m15s", 5415),
        ("1.5h", 5400),
        ("0.5s", 0.5),
        ("2H", 7200),
        (" 2h ", 7200),
        ("30min", 1800),
        ("2hours", 7200),
        ("01:30:00", 5400),
        ("100:00:00", 360000),
        ("1-12:00:00", 129600),
    ],
)
def test_a_duration_is_parsed(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "h",
            "-5m",
            "5x",
            "12h1d",
            "1h1h",
            "1 h",
            "1h,2m",
            "1hm",
            "1.h",
            ".5h",
            "1..5h",
            "1e3s",
            "inf",
            "nan",
        ),
        *("²h", "٣h", "10:00", "1:60:00", "1:2:3:4", "a:b:c", "x-1:00:00", "-1:00:00"),
    ],
)
def test_an_invalid_duration_is_refused_with_an_example(text):
    with pytest.raises(errors.UserError, match="expected a time such as 90m, 2h or 1d12h"):
        units.parse_duration(text)


def test_a_number_without_a_unit_is_no_duration_and_the_error_shows_the_format():
    with pytest.raises(errors.UserError) as caught:
        units.parse_duration("30")
    assert caught.value.line() == 'expected a time such as 90m, 2h or 1d12h, got "30": write 30m or 30s'


def test_a_duration_of_more_than_a_century_is_refused():
    assert units.parse_duration("36500d") == units.LONGEST_S
    for text in ("36501d", "9" * 400 + "h", "9" * 400 + "-00:00:00"):
        with pytest.raises(errors.UserError):
            units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("18G", 18 * 2**30),
        ("512M", 512 * 2**20),
        ("24GiB", 24 * 2**30),
        ("24GB", 24 * 2**30),
        ("24gb", 24 * 2**30),
        ("1.5T", 3 * 2**39),
        ("64k", 65536),
        ("10B", 10),
        ("0G", 0),
        ("9007199254740993B", 9007199254740993),
    ],
)
def test_a_size_is_parsed(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "-1G", "1 G", "18X", "18GG", "18iB", "1.G", "1e3M", "²G", "9999999P", "inf", "9" * 400 + "G"]
)
def test_an_invalid_size_is_refused_with_an_example(text):
    with pytest.raises(errors.UserError, match="expected a size such as 18G, 512M or 24GiB"):
        units.parse_size(text)


def test_a_number_without_a_unit_is_no_size_and_the_error_shows_the_format():
    with pytest.raises(errors.UserError) as caught:
        units.parse_size("18")
    assert caught.value.line() == 'expected a size such as 18G, 512M or 24GiB, got "18": write 18G or 18M'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (45, "45s"),
        (59.99, "59s"),
        (60, "1m00s"),
        (725, "12m05s"),
        (3720, "1h02m"),
        (86399, "23h59m"),
        (86400, "1d00h"),
        (3 * 86400 + 4 * 3600 + 59, "3d04h"),
        (-90, "-1m30s"),
    ],
)
def test_a_duration_is_printed_short(seconds, text):
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1K"),
        (512 * 2**20, "512M"),
        (3 * 2**29, "1.5G"),
        (24 * 2**30, "24G"),
        (2**30 - 1, "1G"),
        (5000 * 2**50, "5000P"),
    ],
)
def test_a_size_is_printed_short(size, text):
    assert units.format_size(size) == text


@given(st.integers(0, int(units.LONGEST_S)))
def test_a_printed_duration_reads_back_to_what_it_shows(seconds):
    read = units.parse_duration(units.format_duration(seconds))
    assert read <= seconds < read + 3600
    assert units.format_duration(read) == units.format_duration(seconds)


@given(st.integers(0, 2**60))
def test_a_printed_size_reads_back_to_what_it_shows(size):
    read = units.parse_size(units.format_size(size))
    assert abs(read - size) <= 0.05 * max(size, 1)
    assert units.format_size(read) == units.format_size(size)


@pytest.mark.parametrize("parse", [units.parse_duration, units.parse_size])
@given(text=st.text(alphabet="0123456789.:-dhmsGiB wx", max_size=12))
def test_any_text_is_parsed_or_refused_with_an_explanation(parse, text):
    try:
        answer = parse(text)
    except errors.UserError:
        return
    assert answer >= 0


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("0", True), ("9" * 18, True), ("9" * 19, False), ("²", False), ("٣", False), ("", False), ("-1", False)],
)
def test_a_whole_number_has_ascii_digits_and_fits_into_64_bits(text, is_one):
    assert units.is_whole(text) == is_one


def test_sizes_are_rounded_up_to_whole_mebibytes():
    assert [units.mib_of(size) for size in (0, 1, 2**20, 2**20 + 1, 18 * 2**30)] == [0, 1, 1, 2, 18432]

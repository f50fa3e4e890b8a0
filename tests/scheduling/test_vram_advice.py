"""Advice on --vram, based on what earlier runs of the same command used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model import units
from dibs.scheduling import vram_advice
from dibs.scheduling.vram_advice import GIB, LEAST_LOOKS, Earlier

CARD = 24 * GIB
SIZES = st.integers(0, 100 * GIB)
RUNS = st.lists(st.builds(Earlier, SIZES, st.integers(1, 9), st.booleans()), max_size=5)


def ran(gib, looks=LEAST_LOOKS, is_done=True):
    return Earlier(int(gib * GIB), looks, is_done)


@pytest.mark.parametrize(
    ("declared", "runs", "told"),
    [
        # Nothing is known, or it is as declared.
        (6, [], ""),
        (0, [], ""),
        (6, [ran(6)], ""),
        (6, [ran(3)], ""),
        (18, [ran(9)], ""),
        (5, [ran(1.5)], ""),
        # Less declared than was used: one run is enough, with any outcome and duration.
        (6, [ran(6.5)], "up to 6.5G of a GPU, more than the 6G declared: try --vram 8G"),
        (6, [ran(2), ran(9, looks=1, is_done=False)], "up to 9G of a GPU, more than the 6G declared: try --vram 10G"),
        (
            20,
            [ran(23)],
            "up to 23G of a GPU, more than the 20G declared: without --vram it gets exclusive use of a GPU",
        ),
        # Much more declared than was used.
        (18, [ran(3)], "up to 3G of a GPU, and 18G are declared: with --vram 4G more jobs fit on the GPU"),
        (18, [ran(3), ran(8.5)], "up to 8.5G of a GPU, and 18G are declared: with --vram 10G more jobs fit on the GPU"),
        (18, [ran(3), ran(10)], ""),
        (18, [ran(3, is_done=False)], ""),
        (18, [ran(3, looks=LEAST_LOOKS - 1)], ""),
        (18, [ran(0)], ""),
        # Exclusive use, and hardly any memory used.
        (0, [ran(5)], "up to 5G of a GPU of 24G: with --vram 6G it would share one"),
        (0, [ran(0.3)], "up to 307.2M of a GPU of 24G: with --vram 1G it would share one"),
        (0, [ran(6)], ""),
        (0, [ran(5), ran(7, is_done=False)], ""),
        (0, [ran(5, is_done=False)], ""),
        (0, [ran(0)], ""),
    ],
)
def test_a_large_difference_gives_a_hint(declared, runs, told):
    said = vram_advice.hint(declared * GIB, runs, CARD)
    assert said == (f"earlier runs of this command used {told}" if told else "")


def test_without_a_known_card_or_with_a_small_one_there_is_no_advice_to_share():
    assert vram_advice.hint(0, [ran(1)], None) == ""
    assert vram_advice.hint(0, [ran(0.4)], 2 * GIB - 1) == ""


@given(SIZES, RUNS, st.none() | SIZES)
def test_advice_covers_the_peak_and_following_it_ends_the_advice(declared, runs, card):
    said = vram_advice.hint(declared, runs, card)
    if "--vram " in said and "without" not in said:
        advised = units.parse_size(said.partition("--vram ")[2].split()[0])
        assert advised >= max(run.peak for run in runs)
        assert vram_advice.hint(advised, runs, card) == ""

"""Points of a parameter space: each once, in order, by index, shuffled, sampled; and in constant memory."""

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import errors
from dibs.sweeps import columns, grid, parameters, spaces, values
from dibs.sweeps.grid import Points


def space(*words, **more):
    """Build a space from `-p` arguments: `space("lr 0.1 0.01", "seed=range(3)")`."""
    return spaces.build([parameters.parse(each.split()) for each in words], **more)


def data(points):
    """Return the data of all points as programs would read it."""
    return [point.data() for point in points]


def texts(points):
    """Return the values of all points as written, joined: `["0.1 32", ...]`."""
    return [" ".join(value.text for value in point.values) for point in points]


#: Spaces of one to three columns of distinct values.
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def of_sizes(lengths):
    """Build a space whose columns have these lengths."""
    return space(*(f"p{n} " + " ".join(str(value) for value in range(size)) for n, size in enumerate(lengths)))


@given(sizes)
def test_every_point_comes_once_in_the_order_of_the_product(lengths):
    expected = [" ".join(map(str, row)) for row in itertools.product(*map(range, lengths))]
    assert texts(Points(of_sizes(lengths))) == expected


@given(sizes, st.integers(0, 9))
def test_a_shuffle_has_the_same_points_in_another_order(lengths, seed):
    whole, shuffled = Points(of_sizes(lengths)), Points(of_sizes(lengths), is_shuffled=True, seed=seed)
    assert sorted(texts(shuffled)) == sorted(texts(whole))
    assert texts(shuffled) == texts(Points(of_sizes(lengths), is_shuffled=True, seed=seed))
    assert [point.index for point in shuffled] == list(range(whole.most))


@given(sizes, st.integers(1, 40), st.integers(0, 9))
def test_a_sample_is_the_beginning_of_the_shuffle(lengths, sample, seed):
    """So it has no duplicates, and a larger sample only adds points."""
    walk = texts(Points(of_sizes(lengths), is_shuffled=True, seed=seed))
    points = Points(of_sizes(lengths), sample=sample, seed=seed)
    assert texts(points) == walk[:sample]
    assert points.most == min(sample, len(walk))


WALKS = {
    "in order": Points(space("a 1 2 3", "b x y")),
    "zip": Points(space("a 1 2 3", "c 7 8", "b x y z", zips=[["a", "b"]])),
    "shuffled": Points(space("a 1 2 3", "b=range(4)"), is_shuffled=True, seed=5),
    "sampled": Points(space("a 1 2 3", "b=range(4)"), sample=7, seed=5),
    "drawn": Points(space("lr=loguniform(1e-5,1e-1)", "bs 32 64", "m=normal(0,1)"), sample=9, seed=2),
    "exclude": Points(space("a 1 2 3", "b x y", exclude=["a == 2 and b == 'x'"])),
    "when": Points(space("opt sgd adam", "m 0.9 0.99", when={"m": "opt == 'sgd'"}), is_shuffled=True),
    "coarse": Points(spaces.build([parameters.Parameter("a", columns.Uniform(0, 1, 0.25))]), sample=100),
}


@pytest.mark.parametrize("name", WALKS)
def test_access_by_index_equals_iteration(name):
    points = WALKS[name]
    walked = list(points)
    assert [points.at(index) for index in range(len(walked))] == walked
    with pytest.raises(IndexError):
        points.at(len(walked))


@pytest.mark.parametrize("name", WALKS)
def test_no_point_is_repeated(name):
    keys = [point.key for point in WALKS[name]]
    assert len({*keys}) == len(keys)
    assert not WALKS[name].is_exact or len(keys) == WALKS[name].most


def test_a_large_space_starts_at_once_and_has_random_access():
    points = Points(space("a=range(1000000)", "b=range(1000000)"))
    assert points.most == 10**12
    assert next(iter(points)).data() == {"a": 0, "b": 0}
    assert points.at(10**12 - 1).data() == {"a": 999_999, "b": 999_999}
    assert points.at(1_000_001).data() == {"a": 1, "b": 1}


def test_the_size_of_a_space_is_not_limited():
    huge = space("a=range(1e12)", "b=range(1e12)", "c=range(1e12)")
    assert next(iter(Points(huge))).data() == {"a": 0, "b": 0, "c": 0}
    for more in ({"is_shuffled": True}, {"sample": 5}):
        points = Points(huge, **more)
        assert next(iter(points)) == points.at(0)


@pytest.mark.parametrize(
    "points",
    [
        Points(space("a=range(1000000)", "b=range(1000000)")),
        Points(space("a=range(100)", "b=range(100)", "c=range(100)")),
        Points(space("a=range(1000000)", "b=range(1000000)"), is_shuffled=True),
        Points(space("a=range(1000000)", "b=range(1000000)"), sample=10**6),
        Points(space("lr=uniform(0,1)", "bs 32 64"), sample=10**6),
        Points(space("a=range(1000000)", "b 1 2", exclude=["a % 2 == 0"])),
    ],
    ids=["10^12", "10^6", "shuffled", "sampled", "drawn", "excluded"],
)
# What coverage keeps of a line that runs for the first time would count.
@pytest.mark.no_cover
def test_iteration_uses_constant_memory(points):
    """20,000 points take as much as 2,000."""
    walk = iter(points)
    for _ in range(2_000):
        next(walk)
    tracemalloc.start()
    for _ in range(20_000):
        next(walk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_a_small_shuffled_space_has_the_order_of_simple_hypersearch():
    """As `simple_hypersearch --seed 0` prints it."""
    points = Points(space("lr 0.001 0.0005 0.0001", "bs 32 64 128"), is_shuffled=True, seed=0)
    assert texts(points)[:3] == ["0.0001 64", "0.0005 128", "0.001 64"]


def test_zipped_parameters_vary_together_at_the_place_of_the_first():
    points = Points(space("model a b", "lr 1 2", "ckpt x x", zips=[["model", "ckpt"]]))
    assert texts(points) == ["a x 1", "a x 2", "b x 1", "b x 2"]


def test_a_parameter_is_left_out_where_its_condition_is_false():
    points = Points(space("opt sgd adam", "m 0.9 0.99", when={"m": "opt == 'sgd'"}))
    assert data(points) == [{"opt": "sgd", "m": 0.9}, {"opt": "sgd", "m": 0.99}, {"opt": "adam"}]
    assert [point.index for point in points] == [0, 1, 2]


def test_conditions_may_depend_on_parameters_with_conditions():
    """`c` needs `b`, and `b` needs `a`; the order in which they are given does not matter."""
    points = Points(space("c 5 6", "b 3 4", "a 1 2", when={"c": "b == 4", "b": "a == 2"}))
    expected = [{"a": 1}, {"b": 3, "a": 2}, {"c": 5, "b": 4, "a": 2}, {"c": 6, "b": 4, "a": 2}]
    assert data(points) == expected


def test_circular_conditions_are_refused():
    with pytest.raises(errors.UserError, match="without a cycle"):
        space("a 1 2", "b 1 2", when={"a": "b == 1", "b": "a == 1"})


def test_excluded_points_are_left_out():
    points = Points(space("bs 64 128", "model s xl", exclude=["bs == 128 and model == 'xl'"]))
    assert texts(points) == ["64 s", "64 xl", "128 s"]
    assert (points.most, points.is_exact) == (4, False)


def blocks(*many, common=(), **more):
    """Build a union of blocks of `-p` arguments."""
    return spaces.build(
        [parameters.parse(each.split()) for each in common],
        blocks=[[parameters.parse(each.split()) for each in block] for block in many],
        **more,
    )


def test_blocks_are_a_union_of_products():
    found = blocks(["method GAN ALI", "packing 1"], ["method WGAN", "packing 3", "zmode 1 2"], common=["seed 0 1"])
    assert len(data(Points(found))) == 2 * 2 + 2 * 2
    assert data(Points(found))[0] == {"seed": 0, "method": "GAN", "packing": 1}
    assert Points(found).is_exact
    assert [Points(found).at(n) for n in range(8)] == list(Points(found))


def test_a_point_of_two_blocks_comes_once():
    found = blocks(["a 1 2 3", "b=range(2)"], ["a 3 4", "b=range(1,3)"], ["a 9", "b=range(1)"])
    keys = [point.key for point in Points(found)]
    assert len(keys) == len({*keys}) == 6 + 3 + 1
    assert sorted(point.key for point in Points(found, is_shuffled=True)) == sorted(keys)


def test_disjoint_blocks_need_no_check_of_every_point():
    assert Points(blocks(["a 1 2", "b 5"], ["a 3 4", "b 5"])).is_exact
    assert not Points(blocks(["a 1 2", "b 5"], ["a 2 3", "b 5"])).is_exact


def test_a_block_overrides_the_common_parameters():
    assert texts(Points(blocks(["lr 1"], ["bs 9"], common=["lr 2 3", "bs 8"]))) == ["1 8", "2 9", "3 9"]


def test_a_space_with_random_values_needs_a_sample_size():
    with pytest.raises(errors.UserError, match="lr, k is random: set the number of points with --sample N"):
        Points(space("lr=uniform(0,1)", "k=randint(1,3)"))


@pytest.mark.parametrize("sample", [0, -1])
def test_a_sample_has_at_least_one_point(sample):
    with pytest.raises(errors.UserError, match="--sample expected 1 or more points"):
        Points(space("a 1"), sample=sample)


def test_random_values_stay_the_same_when_another_parameter_is_added():
    alone = [point.data()["lr"] for point in Points(space("lr=uniform(0,1)"), sample=20, seed=4)]
    beside = [point.data()["lr"] for point in Points(space("m=uniform(2,3)", "lr=uniform(0,1)"), sample=20, seed=4)]
    assert alone == beside


def test_random_values_are_repeatable_and_differ_by_seed():
    def drawn(seed):
        return texts(Points(space("lr=loguniform(1e-5,1e-1)"), sample=50, seed=seed))

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1)[:2] == ["0.0030542459", "6.3035326e-5"]


def test_samples_cover_the_axes_evenly():
    points = Points(space("lr=uniform(0,1)", "bs 32 64 128"), sample=31)
    counts = [texts([point])[0].split()[1] for point in points]
    assert sorted(counts.count(size) for size in ("32", "64", "128")) == [10, 10, 11]


def test_random_values_fill_their_range():
    found = [point.values[0].data for point in Points(space("lr=uniform(10,20)"), sample=1000)]
    assert all(10 <= number < 20 for number in found)
    assert all(70 < sum(int(number) == start for number in found) < 130 for start in range(10, 20))
    assert max(len(str(number)) for number in found) <= len("12.34567")


def test_random_values_have_few_digits_and_no_duplicates():
    found = texts(Points(space("lr=uniform(0,1)"), sample=20_000))
    assert len({*found}) == 20_000


def test_random_integers_have_no_duplicates():
    points = Points(space("k=randint(1,8)"), sample=100)
    assert sorted(point.data()["k"] for point in points) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_sample_ends_when_conditions_leave_no_point():
    points = Points(space("lr=uniform(0,1)", exclude=["lr >= 0"]), sample=5)
    assert list(points) == []


def test_the_identity_of_a_point_does_not_depend_on_spelling_and_order():
    one = next(iter(Points(space("lr 1e-3", "bs 32"))))
    other = next(iter(Points(space("bs 32.0", "lr 0.001"))))
    assert one.key == other.key == '{"bs":32,"lr":0.001}'
    assert json.loads(one.key) == one.data()


def test_text_and_numbers_are_different_points():
    assert values.identity({"a": "1"}) != values.identity({"a": 1}) != values.identity({"a": True})


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"zips": [["a", "zzz"]]}, "zip uses zzz; the parameters are a, b"),
        ({"zips": [["a", "b"]]}, "`zip` expected lists of one length: a has 2, b has 3"),
        ({"zips": [["a"]]}, "two or more"),
        ({"zips": [["a", "a"]]}, "once"),
        ({"when": {"zzz": "a == 1"}}, "when uses zzz"),
        ({"when": {"a": "zzz == 1"}}, 'when of a, "zzz == 1", uses zzz; the parameters are a, b'),
        ({"exclude": ["zzz > 1"]}, "exclude"),
    ],
)
def test_unknown_parameter_names_are_refused(more, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        space("a 1 2", "b 1 2 3", **more)


@pytest.mark.parametrize(
    "words", [("a 1 1",), ("a 1 1.0",), ("a 0.1 1e-1",), ("a x x",), ("a 1", "a 2"), ("a true True",)]
)
def test_duplicates_are_refused(words):
    with pytest.raises(errors.UserError, match="twice"):
        space(*words)


def test_random_or_conditional_parameters_cannot_be_zipped():
    with pytest.raises(errors.UserError, match="got a random one"):
        space("a 1 2", "b=uniform(0,1)", zips=[["a", "b"]])
    with pytest.raises(errors.UserError, match="`when` cannot be used for a"):
        space("a 1 2", "b 1 2", zips=[["a", "b"]], when={"a": "b == 1"})


def test_a_space_needs_a_parameter():
    with pytest.raises(errors.UserError, match="at least one parameter"):
        spaces.build([])


@given(st.integers(-50, 50), st.integers(1, 9), st.integers(1, 40), st.integers(-400, 400))
def test_a_computed_column_knows_its_values(start, step, size, number):
    for sign in (1, -1):
        column = columns.Steps(size, start, sign * step, 4)
        assert column.has(number / 4) == ((number / 4) in [value.data for value in column])
    assert not column.has("1")
    assert grid.Axis(("a",), (column,)).has([column[0].data])

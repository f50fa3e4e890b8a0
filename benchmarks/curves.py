"""Record learning curves for the rules of `--early-stop`: `python -m benchmarks.curves > tests/data/curves.json`.

Small models of scikit-learn with drawn hyper-parameters, one loss on held-out data per epoch. Some diverge (null), some
are slow at first and best in the end, most are mediocre: as in a real search. The rules were chosen on these. With
`--held-out` (`tests/data/held_out_curves.json`) other problems, other data, weights and hyper-parameters are recorded,
on which the rules were tried once they were chosen.
"""

from __future__ import annotations

import json
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

EPOCHS = 54
#: Everything of a run is drawn from its number; problems whose numbers are this far apart have other data.
APART = 10_000

Curve = Iterator[float]


def drawn(number: int) -> dict[str, Any]:
    """Return the hyper-parameters of a run."""
    chance = random.Random(number)
    return {
        "seed": number // APART,
        "lr": 10 ** chance.uniform(-4.5, -0.5),
        "hidden": chance.choice([8, 16, 32, 64]),
        "alpha": 10 ** chance.uniform(-6, -1),
        "batch": chance.choice([16, 32, 64, 128]),
    }


def digits(given: dict[str, Any]) -> Curve:
    """A network that reads digits."""
    import numpy
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    inputs, labels = load_digits(return_X_y=True)
    train, held, known, wanted = _split(inputs / 16, labels, given)
    model = MLPClassifier(**_network(given), solver="adam")
    for _ in range(EPOCHS):
        model.partial_fit(train, known, classes=numpy.unique(labels))
        yield log_loss(wanted, model.predict_proba(held))


def friedman(given: dict[str, Any]) -> Curve:
    """A network that learns a function with noise."""
    from sklearn.datasets import make_friedman1
    from sklearn.metrics import mean_squared_error
    from sklearn.neural_network import MLPRegressor

    made = make_friedman1(n_samples=1200, noise=1.0, random_state=given["seed"])
    train, held, known, wanted = _split(*made, given)
    model = MLPRegressor(**_network(given), solver="sgd", momentum=0.9)
    for _ in range(EPOCHS):
        model.partial_fit(train, known)
        yield mean_squared_error(wanted, model.predict(held))


def linear(given: dict[str, Any]) -> Curve:
    """A linear classifier."""
    from sklearn.datasets import make_classification
    from sklearn.linear_model import SGDClassifier
    from sklearn.metrics import log_loss

    made = make_classification(n_samples=2000, n_features=40, n_informative=12, flip_y=0.05, random_state=given["seed"])
    train, held, known, wanted = _split(*made, given)
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=given["lr"], alpha=given["alpha"], random_state=given["seed"]
    )
    for _ in range(EPOCHS):
        model.partial_fit(train, known, classes=[0, 1])
        yield log_loss(wanted, model.predict_proba(held))


def tumours(given: dict[str, Any]) -> Curve:
    """A network that tells tumours apart, with plain gradient descent."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import scale

    inputs, labels = load_breast_cancer(return_X_y=True)
    train, held, known, wanted = _split(scale(inputs), labels, given)
    model = MLPClassifier(**_network(given), solver="sgd", momentum=0.5)
    for _ in range(EPOCHS):
        model.partial_fit(train, known, classes=[0, 1])
        yield log_loss(wanted, model.predict_proba(held))


def diabetes(given: dict[str, Any]) -> Curve:
    """A network that predicts the course of an illness from little data with much noise."""
    from sklearn.datasets import load_diabetes
    from sklearn.metrics import mean_squared_error
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import scale

    inputs, wanted = load_diabetes(return_X_y=True)
    train, held, known, wanted = _split(scale(inputs), scale(wanted), given)
    model = MLPRegressor(**_network(given), solver="adam")
    for _ in range(EPOCHS):
        model.partial_fit(train, known)
        yield mean_squared_error(wanted, model.predict(held))


def wine(given: dict[str, Any]) -> Curve:
    """A network that tells wines apart, from very little data."""
    from sklearn.datasets import load_wine
    from sklearn.preprocessing import scale

    inputs, labels = load_wine(return_X_y=True)
    return _classify(scale(inputs), labels, given, solver="adam")


def moons(given: dict[str, Any]) -> Curve:
    """A network that separates two noisy half circles."""
    from sklearn.datasets import make_moons

    return _classify(*make_moons(600, noise=0.3, random_state=given["seed"]), given, solver="adam")


def boosted_diabetes(given: dict[str, Any]) -> Curve:
    """Boosted trees that predict the course of an illness; many learn the noise in the end."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.metrics import mean_squared_error
    from sklearn.preprocessing import scale

    inputs, wanted = load_diabetes(return_X_y=True)
    train, held, known, wanted = _split(inputs, scale(wanted), given)
    model = GradientBoostingRegressor(**_trees(given)).fit(train, known)
    for found in model.staged_predict(held):
        yield mean_squared_error(wanted, found)


def digits_sgd(given: dict[str, Any]) -> Curve:
    """A network that reads half of the digits, with momentum. Held out."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    return _classify(inputs[:900] / 16, labels[:900], given, solver="sgd", momentum=0.9)


def friedman3(given: dict[str, Any]) -> Curve:
    """A network that learns another function with noise. Held out."""
    from sklearn.datasets import make_friedman3
    from sklearn.metrics import mean_squared_error
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import scale

    inputs, wanted = make_friedman3(n_samples=800, noise=0.1, random_state=given["seed"])
    train, held, known, wanted = _split(scale(inputs), wanted, given)
    model = MLPRegressor(**_network(given), solver="adam")
    for _ in range(EPOCHS):
        model.partial_fit(train, known)
        yield mean_squared_error(wanted, model.predict(held))


def hastie(given: dict[str, Any]) -> Curve:
    """Boosted trees that learn a sphere. Held out."""
    from sklearn.datasets import make_hastie_10_2
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.metrics import log_loss

    train, held, known, wanted = _split(*make_hastie_10_2(n_samples=1200, random_state=given["seed"]), given)
    model = GradientBoostingClassifier(**_trees(given)).fit(train, known)
    for found in model.staged_predict_proba(held):
        yield log_loss(wanted, found)


def ridge(given: dict[str, Any]) -> Curve:
    """A linear regression. Held out."""
    from sklearn.datasets import make_regression
    from sklearn.linear_model import SGDRegressor
    from sklearn.metrics import mean_squared_error
    from sklearn.preprocessing import scale

    inputs, wanted = make_regression(
        n_samples=400, n_features=60, n_informative=20, noise=20, random_state=given["seed"]
    )
    train, held, known, wanted = _split(inputs, scale(wanted), given)
    model = SGDRegressor(
        learning_rate="constant", eta0=given["lr"] / 10, alpha=given["alpha"], random_state=given["seed"]
    )
    for _ in range(EPOCHS):
        model.partial_fit(train, known)
        yield mean_squared_error(wanted, model.predict(held))


def labels_noise(given: dict[str, Any]) -> Curve:
    """A network for three classes with many wrong labels. Held out."""
    from sklearn.datasets import make_classification
    from sklearn.preprocessing import scale

    inputs, labels = make_classification(
        n_samples=500, n_features=20, n_informative=6, flip_y=0.15, n_classes=3, random_state=given["seed"]
    )
    return _classify(scale(inputs), labels, given, solver="sgd", momentum=0.9)


def _classify(inputs: Any, labels: Any, given: dict[str, Any], **options: Any) -> Curve:
    import numpy
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    train, held, known, wanted = _split(inputs, labels, given)
    model = MLPClassifier(**_network(given), **options)
    for _ in range(EPOCHS):
        model.partial_fit(train, known, classes=numpy.unique(labels))
        yield log_loss(wanted, model.predict_proba(held))


def _split(inputs: Any, wanted: Any, given: dict[str, Any]) -> Any:
    from sklearn.model_selection import train_test_split

    return train_test_split(inputs, wanted, test_size=0.4, random_state=given["seed"])


def _network(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "hidden_layer_sizes": (given["hidden"],),
        "learning_rate_init": given["lr"],
        "alpha": given["alpha"],
        "batch_size": given["batch"],
        "random_state": given["seed"],
    }


def _trees(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "n_estimators": EPOCHS,
        "learning_rate": min(1.0, 3 * given["lr"]),
        "max_depth": {8: 1, 16: 2, 32: 3, 64: 5}[given["hidden"]],
        "subsample": {16: 0.3, 32: 0.5, 64: 0.7, 128: 1.0}[given["batch"]],
        "random_state": given["seed"],
    }


class Problem(NamedTuple):
    """What is recorded: runs from a number on."""

    name: str
    learn: Callable[[dict[str, Any]], Curve]
    first: int
    runs: int = 40


PROBLEMS = (
    Problem("digits", digits, 0, 60),
    Problem("friedman", friedman, 0, 60),
    Problem("linear", linear, 0, 60),
    Problem("linear, other data", linear, APART),
    Problem("tumours", tumours, APART),
    Problem("diabetes", diabetes, APART),
    Problem("wine", wine, 2 * APART),
    Problem("moons", moons, 2 * APART),
    Problem("boosted diabetes", boosted_diabetes, 2 * APART),
)
HELD_OUT = (
    Problem("digits, momentum", digits_sgd, 3 * APART),
    Problem("another function", friedman3, 3 * APART),
    Problem("boosted sphere", hastie, 3 * APART),
    Problem("linear regression", ridge, 3 * APART),
    Problem("wrong labels", labels_noise, 3 * APART),
)


def record(learn: Callable[[dict[str, Any]], Curve], number: int) -> list[float | None]:
    """Return the curve of one run; after it diverged there are no numbers."""
    found: list[float | None] = []
    try:
        for value in learn(drawn(number)):
            found.append(float(f"{value:.4g}") if math.isfinite(value) else None)
    except ValueError:
        # The weights are no longer finite.
        found += [None] * (EPOCHS - len(found))
    return found


def main() -> None:
    """Print all curves as JSON."""
    warnings.simplefilter("ignore")
    problems = HELD_OUT if "--held-out" in sys.argv[1:] else PROBLEMS
    found = {
        one.name: [record(one.learn, number) for number in range(one.first, one.first + one.runs)] for one in problems
    }
    print(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main()

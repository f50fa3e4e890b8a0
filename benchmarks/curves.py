"""Record learning curves for the rules of `--early-stop`: `python -m benchmarks.curves > tests/data/curves.json`.

Small models of scikit-learn with drawn hyper-parameters, one loss on held-out data per epoch. Some diverge (null), some
are slow at first and best in the end, most are mediocre: as in a real search. The rules were chosen on these. With
`--held-out` (`tests/data/held_out_curves.json`) other problems, other data, weights and hyper-parameters are recorded,
on which nothing was chosen.
"""

from __future__ import annotations

import json
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

RUNS, HELD_OUT_RUNS, EPOCHS = 60, 40, 54
#: Added to the number of a run that is held out, from which everything of it is drawn.
HELD_OUT = 10_000

Curve = Iterator[float]


def drawn(number: int) -> dict[str, Any]:
    """Return the hyper-parameters of a run."""
    chance = random.Random(number)
    return {
        "seed": number // HELD_OUT,
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
    """A network that tells tumours apart, with plain gradient descent. Held out."""
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
    """A network that predicts the course of an illness from little data with much noise. Held out."""
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
    is_held_out = "--held-out" in sys.argv[1:]
    problems = (linear, tumours, diabetes) if is_held_out else (digits, friedman, linear)
    numbers = range(HELD_OUT, HELD_OUT + HELD_OUT_RUNS) if is_held_out else range(RUNS)
    found = {one.__name__: [record(one, number) for number in numbers] for one in problems}
    print(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main()

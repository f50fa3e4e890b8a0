"""A stand-in for the parts of PyTorch that the recipe in docs/python.md uses: one number is the whole model."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pacing


class Tensor:
    """One number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def square(self) -> Tensor:
        """Return its square."""
        return Tensor(self.value**2)

    def mean(self) -> Tensor:
        """Return itself."""
        return self

    def backward(self) -> None:
        """Do nothing."""

    def item(self) -> float:
        """Return the number."""
        return self.value


def ones(*shape: int) -> Tensor:
    """Return a tensor."""
    return Tensor(1.0)


class Linear:
    """A model of one weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = [1.0]

    def __call__(self, value: Tensor) -> Tensor:
        return Tensor(self.weight[0] * value.value)

    def parameters(self) -> list[list[float]]:
        """Return the weight."""
        return [self.weight]

    def state_dict(self) -> dict[str, float]:
        """Return the state."""
        return {"weight": self.weight[0]}

    def load_state_dict(self, kept: dict[str, float]) -> None:
        """Restore the state."""
        self.weight[0] = kept["weight"]


class SGD:
    """Halves the weight in each step."""

    def __init__(self, parameters: list[list[float]], lr: float) -> None:
        self.parameters = parameters
        self.steps = 0

    def zero_grad(self) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do a step when the test allows it."""
        pacing.step()
        self.parameters[0][0] /= 2
        self.steps += 1

    def state_dict(self) -> dict[str, int]:
        """Return the state."""
        return {"steps": self.steps}

    def load_state_dict(self, kept: dict[str, int]) -> None:
        """Restore the state."""
        self.steps = kept["steps"]


def save(what: object, path: Path) -> None:
    """Store an object in a file."""
    path.write_bytes(pickle.dumps(what))


def load(path: Path) -> Any:
    """Return the object stored in a file."""
    return pickle.loads(path.read_bytes())


nn = SimpleNamespace(Linear=Linear)
optim = SimpleNamespace(SGD=SGD)
cuda = SimpleNamespace(is_initialized=lambda: False)

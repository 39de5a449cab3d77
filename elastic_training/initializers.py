# SPDX-License-Identifier: Apache-2.0
"""Initial rows of keys that a table admits, and the default row of all others.

The initial row of a key is a pure function of the table's seed and the key, so it does not depend on the order in which
keys arrive, on threads or on the number of shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from elastic_training._settings import Setting

_LARGEST = 3e38


class Initializer(Setting):
    """How the rows of new keys begin."""

    family: ClassVar[str] = "embeddings_initializer"

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return an initializer from itself, its name, its config, or an initializer of Keras."""
        if isinstance(value, str):
            value = _NAMED.get(value, value)
        elif not isinstance(value, (dict, Initializer)):
            value = _of_keras(value)
        return super().of(value)


@dataclass(frozen=True, eq=False)
class Uniform(Initializer):
    """Draw each weight uniformly from [low, high)."""

    low: float = -0.05
    high: float = 0.05
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        self._number("low", -_LARGEST, _LARGEST)
        self._number("high", self.low, _LARGEST)


@dataclass(frozen=True, eq=False)
class Normal(Initializer):
    """Draw each weight from a normal distribution with mean zero."""

    stddev: float = 0.05
    kind: ClassVar[str] = "normal"

    def __post_init__(self) -> None:
        self._number("stddev", 0, _LARGEST)


@dataclass(frozen=True, eq=False)
class TruncatedNormal(Initializer):
    """Draw each weight from a normal distribution with mean zero; draws beyond two standard deviations are repeated."""

    stddev: float = 0.05
    kind: ClassVar[str] = "truncated_normal"

    def __post_init__(self) -> None:
        self._number("stddev", 0, _LARGEST)


@dataclass(frozen=True, eq=False)
class Zeros(Initializer):
    """Begin with zeros."""

    kind: ClassVar[str] = "zeros"


@dataclass(frozen=True, eq=False)
class Constant(Initializer):
    """Begin with one value for all weights."""

    value: float = 0.0
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        self._number("value", -_LARGEST, _LARGEST)


_NAMED: dict[str, Initializer] = {
    "uniform": Uniform(),
    "random_uniform": Uniform(),
    "normal": Normal(),
    "random_normal": Normal(),
    "truncated_normal": TruncatedNormal(),
    "zeros": Zeros(),
    "ones": Constant(1.0),
}


def _of_keras(value: Any) -> Any:
    """Return the initializer that equals one of Keras, or `value` if there is none."""
    if not hasattr(value, "get_config"):
        return value
    name = type(value).__name__
    config = value.get_config()
    if name == "RandomUniform":
        return Uniform(config["minval"], config["maxval"])
    if name in ("RandomNormal", "TruncatedNormal") and config["mean"] == 0:
        return (Normal if name == "RandomNormal" else TruncatedNormal)(config["stddev"])
    if name == "Constant":
        return Constant(config["value"])
    return {"Zeros": Zeros(), "Ones": Constant(1.0)}.get(name, value)

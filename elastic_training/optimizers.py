# SPDX-License-Identifier: Apache-2.0
"""How a table learns: one step for each distinct key of a batch, inside the backward pass.

Each has a second form, `Group...`, with sparse group lasso after "Adaptive Optimizers with Sparse Group Lasso": `l1`
makes single weights zero, `l21` whole rows, and `l2` shrinks. With all three zero it is the plain optimizer, bit
for bit.

Defaults are those of Keras 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from elastic_training import learning_rates
from elastic_training._settings import Setting

# Fields that Python applies; the table does not know them.
_NOT_IN_TABLE = frozenset({"learning_rate", "clipvalue", "clipnorm", "stop_on_nan"})


@dataclass(frozen=True, eq=False)
class Optimizer(Setting):
    """What all optimizers have.

    Parameters
    ----------
    learning_rate : float, variable or LearningRateSchedule
        A schedule is called with the number of updates of the table so far; changes of a variable take effect at once.
    clipvalue : float or None
        Largest absolute value of an element of a row's gradient, after the gradients of equal keys have been added.
    clipnorm : float or None
        Largest L2 norm of the gradient of the table: of all rows of a batch together, as Keras has it for a dense
        weight. `math.inf` states that the rows are not clipped although the model's optimizer clips.
    stop_on_nan : bool
        Whether a gradient that is not finite is an error, which names table and key. Otherwise that row stays as it is,
        and the table counts it (`refused_updates`).
    """

    learning_rate: Any = 0.01
    clipvalue: float | None = field(default=None, kw_only=True)
    clipnorm: float | None = field(default=None, kw_only=True)
    stop_on_nan: bool = field(default=False, kw_only=True)
    family: ClassVar[str] = "optimizer"
    # The optimizer's kind in the table's JSON.
    table_kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", learning_rates.check(type(self).__name__, self.learning_rate))
        for name in ("clipvalue", "clipnorm"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and value > 0):
                raise ValueError(f"{type(self).__name__}: {name} is {value!r}, expected a number above 0, or None")
        if self.clipvalue is not None and self.clipnorm is not None:
            raise ValueError(f"{type(self).__name__}: clipvalue and clipnorm, expected at most one of them")

    @property
    def clips(self) -> bool:
        """Whether gradients may be changed by clipping."""
        return any(value is not None and value != float("inf") for value in (self.clipvalue, self.clipnorm))

    @property
    def lasso(self) -> bool:
        """Whether rows may become zero by group lasso."""
        return False

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return an optimizer from itself, its config, or its name ("adagrad")."""
        return super().of({"kind": value.lower()} if isinstance(value, str) else value)

    def to_config(self) -> dict[str, Any]:
        return {**super().to_config(), "learning_rate": learning_rates.to_config(self.learning_rate)}

    def table_fields(self) -> dict[str, Any]:
        """Return the "optimizer" object of the table's JSON; the learning rate comes with each update."""
        config = super().to_config()
        return {**{name: value for name, value in config.items() if name not in _NOT_IN_TABLE}, "kind": self.table_kind}

    def __repr__(self) -> str:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values if value is not None)})"


@dataclass(frozen=True, eq=False, repr=False)
class _GroupLasso(Setting):
    """What the optimizers with sparse group lasso have besides.

    Parameters
    ----------
    l1, l2, l21 : float
        Strength for single weights, of shrinkage, and for whole rows.
    release_after : int
        Number of updates of the table for which a row must have stayed zero before its weights and slots are given
        back; 0: never.
    """

    l1: float = field(default=0.0, kw_only=True)
    l2: float = field(default=0.0, kw_only=True)
    l21: float = field(default=0.0, kw_only=True)
    release_after: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("l1", "l2", "l21"):
            self._number(name, 0, 1e6)
        self._whole("release_after", 0, 2**31 - 1)
        if self.release_after and not self.lasso:
            name = type(self).__name__
            raise ValueError(f"{name}: release_after without l1 or l21, expected 0, because no row becomes zero")

    @property
    def lasso(self) -> bool:
        return self.l1 > 0 or self.l21 > 0


@dataclass(frozen=True, eq=False, repr=False)
class SGD(Optimizer):
    """Stochastic gradient descent, without momentum: x -= η·g."""

    kind: ClassVar[str] = "sgd"
    table_kind: ClassVar[str] = "sgd"


@dataclass(frozen=True, eq=False, repr=False)
class Adagrad(Optimizer):
    """a += g², x -= η·g / √(a + ε); one accumulator for each weight."""

    learning_rate: Any = 0.001
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7
    kind: ClassVar[str] = "adagrad"
    table_kind: ClassVar[str] = "adagrad"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("initial_accumulator", 0, 1e30)
        self._number("epsilon", 0, 1)
        if self.initial_accumulator == 0 and self.epsilon == 0:
            raise ValueError(f"{type(self).__name__}: initial_accumulator and epsilon are 0, expected one above 0")


@dataclass(frozen=True, eq=False, repr=False)
class RowwiseAdagrad(Adagrad):
    """Adagrad with one accumulator for each row, to which the mean of g² is added: 4 bytes of state a row."""

    kind: ClassVar[str] = "rowwise_adagrad"
    table_kind: ClassVar[str] = "rowwise_adagrad"


@dataclass(frozen=True, eq=False, repr=False)
class Adam(Optimizer):
    """Adam of rows that get a gradient, with bias correction by the number of updates of the row."""

    learning_rate: Any = 0.001
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    kind: ClassVar[str] = "adam"
    table_kind: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta_1", "beta_2"):
            self._number(name, 0, 1 - 2**-24)
        self._number("epsilon", 1e-30, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Ftrl(Optimizer):
    """FTRL-proximal as in Keras: the first steps forget a part of the initial weights. A rate of 0 changes nothing.

    Parameters
    ----------
    learning_rate_power : float
        At most 0; -0.5 divides by the square root of the accumulated squares.
    l2_shrinkage : float
        Strength of a penalty that is part of the gradient.
    beta : float
        Added to the root of the accumulated squares, before the learning rate divides it.
    """

    learning_rate: Any = 0.001
    learning_rate_power: float = -0.5
    initial_accumulator: float = 0.1
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    kind: ClassVar[str] = "ftrl"
    table_kind: ClassVar[str] = "ftrl"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("learning_rate_power", -1, 0)
        self._number("initial_accumulator", 1e-30, 1e30)
        for name in ("l2_shrinkage", "beta"):
            self._number(name, 0, 1e6)


@dataclass(frozen=True, eq=False, repr=False)
class GroupSGD(_GroupLasso, SGD):
    kind: ClassVar[str] = "group_sgd"


@dataclass(frozen=True, eq=False, repr=False)
class GroupAdagrad(_GroupLasso, Adagrad):
    kind: ClassVar[str] = "group_adagrad"


@dataclass(frozen=True, eq=False, repr=False)
class GroupRowwiseAdagrad(_GroupLasso, RowwiseAdagrad):
    kind: ClassVar[str] = "group_rowwise_adagrad"


@dataclass(frozen=True, eq=False, repr=False)
class GroupAdam(_GroupLasso, Adam):
    kind: ClassVar[str] = "group_adam"


@dataclass(frozen=True, eq=False, repr=False)
class GroupFtrl(_GroupLasso, Ftrl):
    kind: ClassVar[str] = "group_ftrl"

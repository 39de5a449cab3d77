# SPDX-License-Identifier: Apache-2.0
"""What a table is made of, and its JSON, which the op of the table reads."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Self

from elastic_training.admission import Admission, AlwaysAdmit
from elastic_training.eviction import Eviction
from elastic_training.initializers import Constant, Initializer, Uniform, Zeros
from elastic_training.optimizers import Adagrad, Optimizer
from elastic_training.tiers import Tiers

VERSION = 1
KEYS = ("int64", "string")
# Bytes of a row number and of a gradient's offset allow more; a wider row is a mistake.
MOST_COLUMNS = 65_536
_LONGEST_NAME = 1_024


@dataclass(frozen=True)
class TableConfig:
    """The configuration of a table.

    Parameters
    ----------
    name : str
        Name in files, reports and messages.
    dim : int
        Number of weights of a row.
    key : {"int64", "string"}
    seed : int or None
        Seed of initial rows, in [0, 2^63); None: derived from the name.
    initializer : Initializer
        Initial rows of admitted keys.
    default : Zeros or Constant
        What keys without a row read, and evicted ones; group lasso requires zeros.
    optimizer : Optimizer
    admission : Admission
    eviction : Eviction or None
    tiers : Tiers or None
        None: all rows are in memory.
    """

    name: str
    dim: int
    key: str = "int64"
    seed: int | None = None
    initializer: Initializer = field(default_factory=Uniform)
    default: Initializer = field(default_factory=Zeros)
    optimizer: Optimizer = field(default_factory=lambda: Adagrad(0.05))
    admission: Admission = field(default_factory=AlwaysAdmit)
    eviction: Eviction | None = None
    tiers: Tiers | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name.encode()) <= _LONGEST_NAME or "\0" in self.name:
            raise ValueError(f"table: name {self.name!r}, expected a string of 1 to {_LONGEST_NAME} bytes without NUL")
        what = f"table {self.name!r}"
        if not isinstance(self.dim, int) or isinstance(self.dim, bool) or not 1 <= self.dim <= MOST_COLUMNS:
            raise ValueError(f"{what}: dim is {self.dim!r}, expected an integer from 1 to {MOST_COLUMNS}")
        if self.key not in KEYS:
            raise ValueError(f"{what}: key is {self.key!r}, expected 'int64' or 'string'")
        seed = zlib.crc32(self.name.encode()) if self.seed is None else self.seed
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise ValueError(f"{what}: seed is {self.seed!r}, expected an integer from 0 to 2^63 - 1")
        object.__setattr__(self, "seed", seed)
        eviction = None if self.eviction is None else Eviction.of(self.eviction)
        object.__setattr__(self, "eviction", eviction)
        object.__setattr__(self, "tiers", None if self.tiers is None else Tiers.of(self.tiers))
        for name, family in _FAMILIES.items():
            object.__setattr__(self, name, family.of(getattr(self, name)))
        if not isinstance(self.default, (Zeros, Constant)):
            raise ValueError(f"{what}: default is {self.default!r}, expected Zeros or Constant")
        if self.optimizer.lasso and self.default not in (Zeros(), Constant(0.0)):
            raise ValueError(f"{what}: default is {self.default!r}, expected Zeros, because group lasso releases rows")

    def to_config(self) -> dict[str, Any]:
        """Return what from_config needs, as JSON values."""
        config = {name: getattr(self, name) for name in ("name", "dim", "key", "seed")}
        config.update((name, getattr(self, name).to_config()) for name in _FAMILIES)
        config["tiers"] = None if self.tiers is None else self.tiers.to_config()
        return {**config, "eviction": None if self.eviction is None else self.eviction.to_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    def to_json(self) -> str:
        """Return the `config` attribute of the table's op.

        It lacks what the table does not know: the learning rate, which comes with each update, and clipping.
        """
        fields: dict[str, Any] = {
            "version": VERSION,
            "name": self.name,
            "key": self.key,
            "dim": self.dim,
            "seed": self.seed,
            "initializer": self.initializer.to_config(),
            "default": self.default.to_config(),
            "optimizer": self.optimizer.table_fields(),
            "admission": self.admission.to_config(),
        }
        if self.optimizer.stop_on_nan:
            fields["stop_on_nan"] = True
        if self.eviction is not None:
            fields["eviction"] = self.eviction.table_fields()
        if self.tiers is not None:
            fields["tiers"] = self.tiers.table_fields(self.name)
        return json.dumps(fields)


_FAMILIES: dict[str, type[Any]] = {
    "initializer": Initializer,
    "default": Initializer,
    "optimizer": Optimizer,
    "admission": Admission,
}

# SPDX-License-Identifier: Apache-2.0
"""What a layer knows of a feature, and the tables that features share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from elastic_training.admission import Admission, AlwaysAdmit
from elastic_training.config import MOST_COLUMNS, TableConfig
from elastic_training.eviction import Eviction
from elastic_training.initializers import Initializer
from elastic_training.layers.pooling import COMBINERS
from elastic_training.optimizers import Optimizer
from elastic_training.table import Table
from elastic_training.tiers import Tiers

# Field of a feature: field of its table's configuration, and the family of its values.
_OF_TABLE: dict[str, tuple[str, type[Any] | None]] = {
    "dim": ("dim", None),
    "seed": ("seed", None),
    "optimizer": ("optimizer", Optimizer),
    "admit": ("admission", Admission),
    "evict": ("eviction", Eviction),
    "tiers": ("tiers", Tiers),
    "embeddings_initializer": ("initializer", Initializer),
}


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature of FeatureEmbeddings; None leaves a setting to the other features of the table, or to the layer.

    Parameters
    ----------
    dim : int or None
        Number of columns; None only if `table` or another feature of it says.
    optimizer, admit, evict, embeddings_initializer : as of HashEmbedding
    combiner : {"sum", "mean", "sqrtn"} or None
        How the keys of the last axis become one row; None: each key has a row.
    mask_zero : bool
        Whether key 0, or the empty string, means "no key": it reads the default row, is not trained, and not pooled.
    table : str, Table or None
        Features of one layer with the same name share a table; a Table may be shared by layers. None: the name of the
        feature.
    seed : int or None
    tiers : as of HashEmbedding
    """

    dim: int | None = None
    optimizer: Any = None
    admit: Any = None
    evict: Any = None
    embeddings_initializer: Any = None
    combiner: str | None = None
    mask_zero: bool = False
    table: Any = None
    seed: int | None = None
    tiers: Any = None

    def __post_init__(self) -> None:
        whole = isinstance(self.dim, int) and not isinstance(self.dim, bool)
        if isinstance(self.optimizer, int) and whole:
            what = f"optimizer: {self.optimizer!r}, expected an optimizer"
            raise ValueError(f"{what}; tables have no size, so the number of columns comes first: {self.optimizer!r}")
        if self.dim is not None and not (whole and 1 <= self.dim <= MOST_COLUMNS):
            raise ValueError(f"dim: {self.dim!r}, expected the number of columns, an integer from 1 to {MOST_COLUMNS}")
        if self.combiner is not None and self.combiner not in COMBINERS:
            raise ValueError(f"combiner: {self.combiner!r}, expected None, 'sum', 'mean' or 'sqrtn'")
        if self.table is not None and not isinstance(self.table, (str, Table)):
            raise ValueError(f"table: {self.table!r}, expected a name or a Table")
        if isinstance(self.table, Table):
            # Raises an error if the table has no settings.
            _ = self.table.settings
        for name, (_, family) in _OF_TABLE.items():
            value = getattr(self, name)
            if family is not None and value is not None:
                object.__setattr__(self, name, family.of(value))

    def settings(self) -> dict[str, Any]:
        """Return what is set of the table's configuration: field of Feature → value."""
        return {name: getattr(self, name) for name in _OF_TABLE if getattr(self, name) is not None}

    def to_config(self) -> dict[str, Any]:
        """Return the fields as JSON values; a Table stays what it is."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value.to_config() if name in _FAMILIES and value else value for name, value in values.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(**config)


_FAMILIES = {name for name, (_, family) in _OF_TABLE.items() if family is not None}


def merge(owner: str, table: str, features: Mapping[str, Feature], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a table that features share: field of Feature → value.

    Parameters
    ----------
    owner, table : str
        What messages call the layer, and the table.
    features : {name: Feature}
    defaults : {field: value}
        Settings of the layer, for what no feature says.

    Raises
    ------
    ValueError
        If two features disagree.
    """
    merged: dict[str, tuple[Any, str]] = {}
    for name, feature in features.items():
        for field, value in {**feature.settings(), "mask_zero": feature.mask_zero}.items():
            other, first = merged.setdefault(field, (value, name))
            if other != value:
                raise ValueError(
                    f"{owner}: table {table!r}: {field} of feature {name!r} is {value!r}, "
                    f"expected {other!r}, as of feature {first!r}"
                )
    del merged["mask_zero"]
    return {**defaults, **{field: value for field, (value, _) in merged.items()}}


def config_of(owner: str, table: str, key: str, settings: Mapping[str, Any]) -> TableConfig:
    """Return the configuration of a table from the settings that `merge` returned."""
    if "dim" not in settings:
        raise ValueError(f"{owner}: table {table!r}: no dim, expected the number of columns")
    known = {_OF_TABLE[field][0]: value for field, value in settings.items()}
    return TableConfig(name=table, key=key, **{"admission": AlwaysAdmit(), **known})


def check_table(owner: str, table: Table, settings: Mapping[str, Any]) -> None:
    """Check that settings beside a Table say what the table has.

    Raises
    ------
    ValueError
        If they differ, such as another optimizer.
    """
    for field, value in settings.items():
        has = getattr(table.settings, _OF_TABLE[field][0])
        if has != value:
            raise ValueError(f"{owner}: {field} is {value!r}, but table {table.name!r} has {has!r}")

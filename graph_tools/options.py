# SPDX-License-Identifier: Apache-2.0
"""Define the options of `cut`, `fuse` and `optimize`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, TypeVar

from graph_tools.errors import UsageError
from graph_tools.json_data import Count, Fraction, JsonSchema, NotNegative

ROW_TYPES = ("fp32", "bf16", "fp16", "int8", "int4")
"""Types of stored rows; `fp32` leaves rows as they were exported."""
RowType = Annotated[str, JsonSchema(enum=list(ROW_TYPES))]

PRECISIONS = ("fp32", "bf16", "int8", "auto")
"""Precisions of dense layers; `auto` is int8 or bf16 if measurements show that it changes little."""
RequestedPrecision = Annotated[str, JsonSchema(enum=list(PRECISIONS))]

NEEDED_PASSES = frozenset({"prune_unreachable", "use_resource_variables", "convert_sparse_lookups", "move_constants"})
"""Passes that cannot be skipped: without them stock TensorFlow cannot run the graph, or the graph is too large."""

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class CutOptions:
    """Options of `cut` that concern tables and names.

    Attributes
    ----------
    embedding_dtype : str
        One of `ROW_TYPES`, for every table that matches no entry of `tensor_types`.
    tensor_types : mapping of pattern to str
        Row type of the tables whose name matches (`fnmatch`); if several patterns match, the last one counts.
    min_norm : float
        Rows whose Euclidean norm is below this count as zero. 0: none. Lossy.
    min_frequency : int
        Keys that were seen less often than this count as absent. 0: none. Lossy.
    memory_limit : int [bytes]
        Memory that a conversion may use; tables are streamed, and steps that need more are left out.
    keep_graph_names : bool
    skip_passes : tuple of str
        Names of passes to skip.
    tier_memory : int or None [bytes]
        Memory of tiered tables for which a dry run forecasts caches; None: only what the indexes take.
    absent_key : mapping of pattern to str
        `zero`, `row:K` (the table's row for key K), or `default` (the behavior of the training system).

    Raises
    ------
    UsageError
        A value is not one of those above.
    """

    embedding_dtype: RowType = "fp32"
    tensor_types: Mapping[str, RowType] = field(default_factory=dict)
    min_norm: NotNegative = 0.0
    min_frequency: Count = 0
    memory_limit: Count = 4 << 30
    keep_graph_names: bool = False
    absent_key: Mapping[str, str] = field(default_factory=dict)
    skip_passes: tuple[str, ...] = ()
    tier_memory: Count | None = None

    def __post_init__(self) -> None:
        types = {f"--tensor-type {pattern}": name for pattern, name in self.tensor_types.items()}
        for option, name in ({"--embedding-dtype": self.embedding_dtype} | types).items():
            if name not in ROW_TYPES:
                raise UsageError(f"{option}: '{name}', expected one of {', '.join(ROW_TYPES)}")
        for pattern, rule in self.absent_key.items():
            if rule not in ("zero", "default") and not (rule.startswith("row:") and len(rule) > 4):
                raise UsageError(f"--absent-key {pattern}: '{rule}', expected zero, row:K or default")
        for option, value, least in (
            ("--min-norm", self.min_norm, 0.0),
            ("--min-frequency", self.min_frequency, 0),
            ("--memory-limit", self.memory_limit, 64 << 20),
        ):
            if not least <= value < math.inf:
                finite = " and finite" if value > least else ""
                raise UsageError(f"{option}: {value}, expected at least {least}{finite}")

    def row_type(self, table: str) -> str:
        """Return the requested row type of a table."""
        return last_match(self.tensor_types, table) or self.embedding_dtype

    def check_names(self, tables: Iterable[str], parts: Iterable[str] = ()) -> None:
        """Raise `UsageError` for a pattern that matches no table; names in `parts` are valid for absent keys only."""
        names = sorted(tables)
        both = [*names, *parts]
        options = (("--tensor-type", self.tensor_types, names), ("--absent-key", self.absent_key, both))
        for option, patterns, known in options:
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in known):
                    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "") or "none"
                    raise UsageError(f"{option} {pattern}: no table of this name, expected one of: {shown}")


@dataclass(frozen=True)
class FuseOptions:
    """Options of `fuse`.

    Attributes
    ----------
    precision : str
        One of `PRECISIONS`.
    skip_passes : tuple of str
        Names of passes to skip.
    user_inputs : tuple of str
        Names or patterns (`fnmatch`) of inputs that are the same for all rows of a request: those that describe the
        user, if rows are items.
    table_store : Path or None
        Folder of table files that artifacts share; None: each artifact has its own.
    max_auc_loss : float
        Largest loss of AUC for which `auto` permits int8; for requests without labels, of rank correlation.
    live : bool
        Follow the changes that a trainer makes to rows and variables.

    Raises
    ------
    UsageError
        A value is not one of those above.
    """

    precision: RequestedPrecision = "auto"
    skip_passes: tuple[str, ...] = ()
    user_inputs: tuple[str, ...] = ()
    table_store: Path | None = None
    max_auc_loss: Fraction = 1e-3
    live: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UsageError(f"--precision: '{self.precision}', expected one of {', '.join(PRECISIONS)}")
        if not 0.0 <= self.max_auc_loss <= 1.0:
            raise UsageError(f"--max-auc-loss: {self.max_auc_loss}, expected a number from 0 to 1")

    def check_inputs(self, signatures: Mapping[str, Iterable[str]]) -> None:
        """Raise `UsageError` for a user input that no signature has; `signatures` contains the inputs of each."""
        known = sorted({name for names in signatures.values() for name in names})
        for name in self.user_inputs:
            if not matching([name], known):
                raise UsageError(f"--user-inputs: no input '{name}', expected some of: {', '.join(known)}")


def matching(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that equal or match one of the patterns."""
    patterns = list(patterns)
    return [name for name in names if any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)]


def last_match(patterns: Mapping[str, _Value], name: str) -> _Value | None:
    """Return the value of the last pattern that a name matches, or None."""
    found = None
    for pattern, value in patterns.items():
        if fnmatchcase(name, pattern):
            found = value
    return found

# SPDX-License-Identifier: Apache-2.0
"""Declare the options that `cut` and `optimize` share: what to keep, and how to store tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.options import Checkpoint, Names, assignments, memory_bytes, size_in_bytes
from graph_tools.options import ROW_TYPES, CutOptions

AbsentKey = Annotated[
    Names,
    typer.Option(
        metavar="TABLE=zero|row:K|default",
        help="Row that a table (a name or pattern) returns for keys that it does not contain: zeros, the row of key K, "
        "or what its training system returns. Repeatable.",
    ),
]

LastEpoch = Annotated[
    int | None,
    typer.Option("--to", metavar="EPOCH", min=0, help="Last epoch of the timeline to apply; by default its end."),
]


@dataclass
class SelectionOptions:
    """Which parts of the source are kept; the fields are arguments of `cut` and `optimize`."""

    signatures: Annotated[
        Names,
        typer.Option("--signature", metavar="NAME", help="Keep this signature; by default all are kept. Repeatable."),
    ] = None
    outputs: Annotated[
        Names,
        typer.Option(
            metavar="NAME",
            help="Keep this output, named by key or tensor; by default all are kept. Repeatable.",
        ),
    ] = None
    checkpoint: Checkpoint = None


@dataclass
class TimelineOptions:
    """The epoch at which the source is taken; the fields are arguments of `cut` and `optimize`."""

    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Lay the changes of this timeline (docs/delta_format.md) over the weights.",
        ),
    ] = None
    last_epoch: LastEpoch = None


@dataclass
class StorageOptions:
    """How tables and the graph are stored."""

    absent_key: AbsentKey = None
    embedding_dtype: Annotated[
        str, typer.Option(metavar="|".join(ROW_TYPES), help="Type of stored table rows; all types but fp32 are lossy.")
    ] = "fp32"
    tensor_type: Annotated[
        Names,
        typer.Option(
            metavar="TABLE=TYPE", help="Type of the rows of the tables with this name or pattern. Repeatable."
        ),
    ] = None
    min_norm: Annotated[
        float, typer.Option(metavar="X", help="Drop rows whose Euclidean norm is smaller than this. Lossy.")
    ] = 0.0
    min_frequency: Annotated[
        int, typer.Option(metavar="N", help="Drop rows whose keys were seen less often than this. Lossy.")
    ] = 0
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            show_default=False,
            help="With --dry-run: memory of tiered tables, such as 4GB, for which caches are forecast; with --requests "
            "also their hits.",
        ),
    ] = None
    keep_graph_names: Annotated[
        bool, typer.Option("--keep-graph-names", metavar="", help="Keep the names of the nodes in the graph.")
    ] = False

    def options(self, memory_limit: float, skip_passes: Iterable[str] | None = None) -> CutOptions:
        """Return the options of a cut.

        Raises
        ------
        UsageError
            A value is wrong.
        """
        return CutOptions(
            embedding_dtype=self.embedding_dtype,
            tensor_types=assignments(self.tensor_type, "--tensor-type"),
            absent_key=assignments(self.absent_key, "--absent-key"),
            min_norm=self.min_norm,
            min_frequency=self.min_frequency,
            keep_graph_names=self.keep_graph_names,
            memory_limit=memory_bytes(memory_limit),
            tier_memory=None if self.memory is None else size_in_bytes(self.memory, "--memory"),
            skip_passes=tuple(skip_passes or ()),
        )

# SPDX-License-Identifier: Apache-2.0
"""Define the options that `cut` and `optimize` share: what to keep, and how to store tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from graph_tools.cli.options import assignments, memory_bytes
from graph_tools.options import ROW_TYPES, CutOptions

Names = list[str] | None

Signature = Annotated[Names, typer.Option(metavar="NAME", help="Keep this signature; repeatable. All by default.")]
Outputs = Annotated[
    Names, typer.Option(metavar="NAME", help="Keep this output, by key or tensor name; repeatable. All by default.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", metavar="", help="Forecast bytes per table and row type, write nothing.")
]
AbsentKey = Annotated[
    Names,
    typer.Option(
        metavar="TABLE=zero|row:K|default",
        help="What a table (name or pattern) gives for keys that it lacks: zeros, the row of key K, or what its "
        "training system gives; repeatable.",
    ),
]
EmbeddingDtype = Annotated[
    str, typer.Option(metavar="|".join(ROW_TYPES), help="How rows of tables are stored; all but fp32 are lossy.")
]
TensorType = Annotated[
    Names, typer.Option(metavar="TABLE=TYPE", help="The same for tables of this name or pattern; repeatable.")
]
MinNorm = Annotated[float, typer.Option(metavar="X", help="Drop rows with a smaller Euclidean norm. Lossy.")]
MinFrequency = Annotated[int, typer.Option(metavar="N", help="Drop rows of keys seen less often. Lossy.")]
KeepGraphNames = Annotated[
    bool, typer.Option("--keep-graph-names", metavar="", help="Keep the names of nodes inside the graph.")
]


def cut_options(
    embedding_dtype: str,
    tensor_type: Names,
    absent_key: Names,
    min_norm: float,
    min_frequency: int,
    keep_graph_names: bool,
    memory_limit: float,
    skip_passes: Iterable[str] = (),
) -> CutOptions:
    """Return the options for the values of the command line."""
    return CutOptions(
        embedding_dtype=embedding_dtype,
        tensor_types=assignments(tensor_type, "--tensor-type"),
        absent_key=assignments(absent_key, "--absent-key"),
        min_norm=min_norm,
        min_frequency=min_frequency,
        keep_graph_names=keep_graph_names,
        memory_limit=memory_bytes(memory_limit),
        skip_passes=tuple(skip_passes),
    )

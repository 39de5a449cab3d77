# SPDX-License-Identifier: Apache-2.0
"""Make a delta: find what changed between two exports of one model, and add it to a timeline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError, naming
from graph_tools.model import Model
from graph_tools.model.same_graph import check_same_graph
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.cut.use_resource_variables import UseResourceVariables
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.readers.lineage import digest_export
from graph_tools.report.delta import DeltaWriteReport
from graph_tools.store.delta import Delta
from graph_tools.store.known_weights import read_weights, write_weights
from graph_tools.store.lineage import read_lineage
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import LINEAGE_BYTES
from graph_tools.store.spill import SpillFolder
from graph_tools.store.timeline import Position, list_segments
from graph_tools.store.timeline_writer import TimelineWriter, find_tip
from graph_tools.tables.plain import plain_tables
from graph_tools.tables.table_diff import check_float, diff_rows, diff_tables, equal_content
from graph_tools.tensors import Array, StreamTensor, TensorSource
from graph_tools.verbs.delta.inspect import describe_segment


@dataclass
class _Side:
    """One of both exports.

    Attributes
    ----------
    place : Path
        Export or checkpoint, for messages.
    model : Model
        With the nodes that an output needs.
    digest : bytes [32]
        SHA-256 of all weights.
    """

    place: Path
    model: Model
    digest: bytes


def make_delta(
    old: str | Path,
    new: str | Path,
    timeline: str | Path,
    *,
    model: str | Path | None = None,
    absent_key: dict[str, str] | None = None,
    memory_limit: int = CutOptions.memory_limit,
    progress: Progress | None = None,
) -> DeltaWriteReport:
    """Add the changes from one export to a later one to a timeline.

    Parameters
    ----------
    old, new : path
        Exports with the same graph; or with `model`, checkpoints or folders of table files. `old` is the state at the
        last epoch of the timeline.
    timeline : path
        Folder of the timeline; it is created if needed.
    model : path, optional
        Export with the graph of both checkpoints.
    absent_key : dict of str to str, optional
        The values of absent keys with which the export is cut, see `CutOptions`.
    memory_limit : int [bytes]
        Memory for the keys and rows of a table; larger tables are read several times.

    Raises
    ------
    UnreadableError, UsageError
        An export or the timeline is damaged.
    ConversionError
        The exports differ in more than a delta can change, or the timeline does not end with `old`.
    """
    begun = time.monotonic()
    steps = progress or Silent()
    folder = Path(timeline)
    graph = None if model is None else Path(model)
    first, second = (_read(Path(place), graph, dict(absent_key or {}), steps) for place in (old, new))
    with naming(new):
        check_same_graph(first.model, second.model)
    start = _start(first, graph, folder)
    with _created(folder), SpillFolder(folder) as spill:
        with naming(new):
            delta = _diff(first.model, second.model, spill, memory_limit, steps)
        steps.begin(f"Writing to {folder}")
        writer = TimelineWriter(folder, start, f"graph-tools delta make {old} {new}\n")
        if writer.position != start:
            raise ConversionError(f"{folder}: another writer has added epoch {writer.position.epoch}, expected none")
        weights = {start.chain: first.digest}
        segment = writer.publish(
            delta, before=lambda made: write_weights(folder, weights | {made.chain: second.digest})
        )
    return DeltaWriteReport(describe_segment(segment), [], time.monotonic() - begun)


def _read(place: Path, graph: Path | None, absent_key: dict[str, str], steps: Progress) -> _Side:
    steps.begin(f"Reading {place}")
    source, checkpoint = (place, None) if graph is None else (graph, place)
    model = read_model(source, checkpoint=checkpoint, absent_key=absent_key)
    if model.embedding_tables:
        raise ConversionError(f"{place}: a fused artifact, expected the export that it was made from")
    PruneUnreachable().apply(model)
    UseResourceVariables().apply(model)
    return _Side(place, model, digest_export(source, checkpoint))


def _start(old: _Side, graph: Path | None, folder: Path) -> Position:
    """Return the place of the old export in the timeline, which must be its end.

    Raises
    ------
    ConversionError
        It is not.
    """
    start = (read_lineage(old.place) if graph is None else None) or Position.start(old.digest[:LINEAGE_BYTES])
    files = list_segments(folder) if folder.is_dir() else []
    if not files:
        return start
    last = Segment(folder / max(files, key=lambda file: file.last).name)
    if read_weights(folder).get(last.chain.hex()) == old.digest.hex():
        header = last.header
        start = Position(header.lineage, header.last_epoch, last.chain, header.term)
    tip = find_tip(folder, start) if start.lineage == last.header.lineage else None
    if tip is None or tip.epoch != start.epoch:
        found = "another lineage" if tip is None else f"epoch {start.epoch}"
        raise ConversionError(
            f"{old.place}: {found}, expected the weights of epoch {last.header.last_epoch}, the last one of {folder}"
        )
    return tip


@contextlib.contextmanager
def _created(folder: Path) -> Iterator[None]:
    """Create a folder, and remove it at the end if it is still empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConversionError(f"{folder}: {error.strerror}, expected a folder for a timeline") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _diff(old: Model, new: Model, spill: SpillFolder, memory_limit: int, steps: Progress) -> Delta:
    tables = []
    count = sum(model.sparse_tables[name].count for model in (old, new) for name in new.sparse_tables)
    steps.begin("Comparing tables", count, "rows")
    for name, table in new.sparse_tables.items():
        tables.append(diff_tables(old.sparse_tables[name], table, spill, memory_limit, steps.advance))
    steps.begin("Comparing variables")
    gathered = {table.handle for table in plain_tables(new)[0]}
    variables: dict[str, TensorSource] = {}
    for name, tensor in new.variables.items():
        if name in gathered:
            tables.append(diff_rows(name, old.variables[name], tensor, spill))
        elif not equal_content(old.variables[name], tensor):
            check_float(tensor.dtype, f"variable '{name}'")
            variables[name] = _as_float(tensor)
    return Delta(tuple(tables), variables)


def _as_float(tensor: TensorSource) -> TensorSource:
    if tensor.dtype == np.float32:
        return tensor

    def make(rows: int) -> Iterator[Array]:
        for block in tensor.chunks(rows):
            yield block.astype(np.float32)

    return StreamTensor(np.dtype(np.float32), tuple(tensor.shape), make)

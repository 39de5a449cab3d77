# SPDX-License-Identifier: Apache-2.0
"""Make a delta: find what changed between two exports of one model, and add it to a timeline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError, naming
from graph_tools.model import Model
from graph_tools.model.same_graph import check_same_graph
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.readers.increments import find_increment, read_increment
from graph_tools.readers.lineage import digest_export
from graph_tools.report.delta import DeltaWriteReport
from graph_tools.store.delta import Delta
from graph_tools.store.known_weights import KnownWeights, read_weights, write_weights
from graph_tools.store.lineage import read_lineage
from graph_tools.store.merging import TimelineEnd, read_to_end
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import LINEAGE_BYTES
from graph_tools.store.spill import SpillFolder
from graph_tools.store.timeline import Position, list_segments
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tables.overlay import overlay
from graph_tools.tables.table_diff import check_float, diff_rows, diff_tables, equal_content, is_float
from graph_tools.tensors import Array, StreamTensor, TensorSource
from graph_tools.verbs.delta.inspect import describe_segment
from graph_tools.verbs.exports import check_export


def make_delta(
    old: str | Path,
    new: str | Path,
    timeline: str | Path,
    *,
    model: str | Path | None = None,
    absent_key: dict[str, str] | None = None,
    memory_limit: int = CutOptions.memory_limit,
    permit_not_finite: bool = False,
    progress: Progress | None = None,
) -> DeltaWriteReport:
    """Add the changes up to a later export to the end of a timeline.

    Parameters
    ----------
    old, new : path
        Exports with the same graph; or with `model`, checkpoints or folders of table files. `old` is the state at any
        epoch of the timeline: later epochs are read from the timeline. `new` may be an increment, which continues the
        last epoch: an incremental checkpoint of DeepRec, or a delta export of TFPlus.
    timeline : path
        Folder of the timeline; it is created if needed.
    model : path, optional
        Export with the graph of both checkpoints.
    absent_key : dict of str to str, optional
        The values of absent keys with which the export is cut, see `CutOptions`.
    memory_limit : int [bytes]
        Memory for the keys and rows of a table; larger tables are read several times.
    permit_not_finite : bool
        Publish NaN and infinities as well, which servers refuse.

    Raises
    ------
    UnreadableError, UsageError
        An export or the timeline is damaged, or the timeline does not continue `old`.
    ConversionError
        The exports differ in more than a delta can change, or the new one has numbers that are not finite.
    """
    begun = time.monotonic()
    steps = progress or Silent()
    folder = Path(timeline)
    made = _Making(Path(old), Path(new), folder, None if model is None else Path(model), dict(absent_key or {}), steps)
    position, before = made.before()
    now, digest = made.now()
    with naming(new):
        check_same_graph(before, now)
    with _created(folder), SpillFolder(folder) as spill:
        with naming(new):
            delta = _diff(before, now, spill, memory_limit, steps)
        steps.begin(f"Writing to {folder}")
        about = f"graph-tools delta make {old} {new}\n"
        writer = TimelineWriter(folder, position, about, permit_not_finite=permit_not_finite)
        if (writer.position.epoch, writer.position.chain) != (position.epoch, position.chain):
            raise ConversionError(f"{folder}: another writer has added epoch {writer.position.epoch}, expected none")
        segment = writer.publish(delta, before=lambda segment: made.remember(segment, digest))
    return DeltaWriteReport(describe_segment(segment), [], time.monotonic() - begun)


@dataclass
class _Making:
    """Reads the states between which a delta is made."""

    old: Path
    new: Path
    folder: Path
    graph: Path | None
    absent_key: dict[str, str]
    steps: Progress

    def before(self) -> tuple[Position, Model]:
        """Return the end of the timeline, and the model at it, with the nodes that an output needs."""
        return self._end.position, _needed(self._read_at_end())

    def now(self) -> tuple[Model, bytes | None]:
        """Return the new model, and the SHA-256 of its weights; None: they are not saved as a whole."""
        increment = find_increment(self.new)
        if increment is None:
            return _needed(self._read(self.new)), digest_export(*self._source(self.new))
        model = self._read_at_end()
        with naming(self.new):
            overlay(model, read_increment(model, increment), self.absent_key)
        return _needed(model), None

    @cached_property
    def _end(self) -> TimelineEnd:
        start = self._start()
        return read_to_end(self.folder, start) if self.folder.is_dir() else TimelineEnd(start, Delta())

    def _read_at_end(self) -> Model:
        """Read the old export, and lay the later epochs of the timeline over it."""
        model = self._read(self.old)
        with naming(self.folder):
            overlay(model, self._end.delta, self.absent_key)
        return model

    def _source(self, place: Path) -> tuple[Path, Path | None]:
        return (place, None) if self.graph is None else (self.graph, place)

    def _read(self, place: Path) -> Model:
        self.steps.begin(f"Reading {place}")
        source, checkpoint = self._source(place)
        model = read_model(source, checkpoint=checkpoint, absent_key=self.absent_key)
        check_export(model, "deltas have the variables of exports")
        return model

    def _start(self) -> Position:
        """Return the place of the old export in the timeline."""
        source, checkpoint = self._source(self.old)
        given = read_lineage(source) if checkpoint is None else None
        if given is not None:
            return given
        self.steps.begin(f"Identifying {self.old}")
        digest = digest_export(source, checkpoint)
        files = list_segments(self.folder) if self.folder.is_dir() else []
        for known in reversed(read_weights(self.folder) if files else []):
            if known.sha256 == digest.hex() and any(file.last == known.epoch for file in files):
                lineage = Segment(self.folder / files[0].name).header.lineage
                return Position(lineage, known.epoch, bytes.fromhex(known.chain))
        return Position.start(digest[:LINEAGE_BYTES])

    def remember(self, segment: Segment, digest: bytes | None) -> None:
        """Remember which weights a segment leads to."""
        if digest is not None:
            state = KnownWeights(segment.header.last_epoch, segment.chain.hex(), digest.hex())
            write_weights(self.folder, [*read_weights(self.folder), state])


def _needed(model: Model) -> Model:
    """Remove what no output needs, and return the model."""
    PruneUnreachable().apply(model)
    return model


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
    variables: dict[str, TensorSource] = {}
    for name, tensor in new.variables.items():
        if len(tensor.shape) > 1 and is_float(tensor.dtype):
            # A server may have any matrix as a table, of which few rows change.
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

# SPDX-License-Identifier: Apache-2.0
"""Apply a timeline: cut an export as it is at a later epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from graph_tools.errors import UsageError, naming
from graph_tools.model import Model
from graph_tools.readers.lineage import find_position
from graph_tools.report.cut import CutReport
from graph_tools.store.delta import Delta
from graph_tools.store.merging import merge_deltas
from graph_tools.store.timeline import Position, TimelineReader
from graph_tools.tables.overlay import overlay
from graph_tools.verbs.cut import CutConversion
from graph_tools.verbs.delta.export import check_export


def apply_delta(
    base: str | Path,
    timeline: str | Path,
    target: str | Path | None,
    *,
    last_epoch: int | None = None,
    **arguments: Any,
) -> CutReport:
    """Cut an export with the changes of a timeline.

    Parameters
    ----------
    base : path
        The export at an epoch of the timeline; an export without `lineage.json` is at epoch 0.
    timeline : path
        Folder of the timeline.
    target : path or None
        As in `cut`; its `lineage.json` tells its epoch.
    last_epoch : int, optional
        Apply segments up to this epoch; by default all.
    arguments
        Further arguments of `cut`.

    Raises
    ------
    UnreadableError
        The export is damaged, or the timeline is or does not continue it.
    UsageError, ConversionError, VerificationError
        As for `cut`.
    """
    return _Application(
        Path(base),
        None if target is None else Path(target),
        timeline=Path(timeline),
        last_epoch=last_epoch,
        **arguments,
    ).run()


@dataclass
class _Application(CutConversion):
    """Cuts a model over which the changes of a timeline lie."""

    timeline: Path = Path()
    last_epoch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_export(self.source)
        self._changes: tuple[Position, Delta] | None = None

    def read(self) -> Model:
        model = super().read()
        with naming(self.timeline):
            overlay(model, self._read_changes()[1], dict(self.options.absent_key))
        return model

    def _read_changes(self) -> tuple[Position, Delta]:
        """Return the position at the last epoch, and all changes up to it."""
        if self._changes is None:
            checkpoint = None if self.checkpoint is None else Path(self.checkpoint)
            reader = TimelineReader(self.timeline, find_position(self.source, checkpoint))
            limit = self.last_epoch
            deltas = []
            while limit is None or reader.position.epoch < limit:
                segment = reader.next()
                if segment is None:
                    break
                deltas.append(segment.delta)
            if limit is not None and reader.position.epoch != limit:
                found = f"epoch {reader.position.epoch} of {self.timeline}"
                raise UsageError(f"--to {limit}: {found}, expected a segment that ends with this epoch")
            self._changes = reader.position, merge_deltas(deltas)
        return self._changes

    @cached_property
    def position(self) -> Position | None:
        """The position at the last epoch."""
        return self._read_changes()[0]

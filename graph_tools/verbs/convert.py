# SPDX-License-Identifier: Apache-2.0
"""Convert a model: the part that `cut`, `fuse` and `optimize` share.

A conversion reads the model, rewrites it, writes it next to its target, proves that both are equal, and only then
renames it to the target.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from graph_tools.errors import ConversionError, UnreadableError, UsageError, VerificationError, WeakProofError, naming
from graph_tools.graph.op_library import Libraries, load_libraries
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.readers.lineage import find_position
from graph_tools.readers.saved_tables import TableOutput
from graph_tools.readers.unknown_ops import check_restored, unknown_ops
from graph_tools.report.cut import CutReport, describe_removals, describe_target, table_bytes
from graph_tools.report.manifest import write_manifest
from graph_tools.report.tiers import forecast_tiers, with_files
from graph_tools.rewriting.protocol import PassResult
from graph_tools.store.lineage import write_lineage
from graph_tools.store.merging import TimelineEnd, read_to_end
from graph_tools.store.table_store import TableStore
from graph_tools.store.timeline import Position
from graph_tools.tables.overlay import overlay
from graph_tools.tensors import byte_size
from graph_tools.verbs.exports import check_export
from graph_tools.verbs.leaving_out import Attempts, Choice
from graph_tools.verbs.staging import check_place, staged
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.pairs import table_pairs
from graph_tools.verification.requests import read_requests
from graph_tools.writer import saved_tensors, write_saved_model

_SAID = 3
"""Number of reasons that the message of a failed verification names; the report lists all."""

Report = TypeVar("Report", bound=CutReport)


class _OnlyTriedError(Exception):
    """A result passed its verification, but must not be put in place."""


@dataclass
class Conversion(ABC, Generic[Report]):
    """The steps of a conversion that all commands share; a subclass adds the steps of its command.

    `cut` and `fuse` describe the attributes.

    Raises
    ------
    UnreadableError, UsageError
        An option is wrong, or a file of requests does not exist.
    """

    source: Path
    target: Path | None
    signatures: Sequence[str] = ()
    outputs: Sequence[str] = ()
    checkpoint: str | Path | None = None
    timeline: str | Path | None = None
    last_epoch: int | None = None
    options: CutOptions = field(default_factory=CutOptions)
    requests: Sequence[str | Path] = ()
    samples: int = SAMPLES
    tolerance: Tolerance | str | None = None
    dry_run: bool = False
    check: bool = True
    accept_weak_proof: bool = False
    seed: int = 0
    op_library: Libraries = None
    table_store: Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        self.steps = self.progress or Silent()
        if self.timeline is None and self.last_epoch is not None:
            raise UsageError(f"--to {self.last_epoch}: no timeline, expected --timeline")
        if self.dry_run:
            self.target = None
        elif self.options.tier_memory is not None:
            raise UsageError("--memory: not a dry run, expected --dry-run, whose forecast it is for")
        elif self.target is None:
            raise UsageError("OUT: none given, expected a folder to write (or --dry-run)")
        else:
            check_place(self.target, self.source)
        if isinstance(self.tolerance, str):
            self.tolerance = Tolerance.parse(self.tolerance)
        for file in self.requests:
            if not Path(file).exists():
                raise UnreadableError(f"{file}: does not exist, expected a file with requests")

    @abstractmethod
    def begin(self, model: Model) -> Report:
        """Create the report from the model as it was read."""

    @abstractmethod
    def rewrite(self, model: Model, choice: Choice) -> list[PassResult]:
        """Run the passes of `cut`."""

    def fuse(self, model: Model, report: Report, choice: Choice) -> None:
        """Run further passes on the model; by default none."""

    def write(self, model: Model, folder: Path, tables: TableOutput) -> dict[Path, str]:
        """Write the model, and return the known SHA-256 of its files."""
        size = sum(byte_size(tensor) for tensor in saved_tensors(model).values())
        self.steps.begin("Writing", size + sum(table_bytes(model).values()), "bytes")
        with naming(self.source, folder):
            return write_saved_model(model, folder, self.advance, True, tables)

    def complete(self, model: Model, report: Report, folder: Path, tables: TableOutput) -> None:
        """Complete the written folder after its verification; by default it is complete."""

    def load_libraries(self) -> None:
        """Load the libraries with ops, before any other work is done."""
        load_libraries(self.op_library)

    def read(self) -> Model:
        """Read the source, with the changes of the timeline if there is one."""
        absent_key = dict(self.options.absent_key)
        model = read_model(
            self.source,
            signatures=tuple(self.signatures),
            outputs=tuple(self.outputs),
            checkpoint=self.checkpoint,
            absent_key=absent_key,
        )
        if self.timeline is not None:
            check_export(model, "`cut` and `optimize --timeline` convert it with the changes")
            with naming(self.timeline):
                overlay(model, self._end.delta, absent_key)
        return model

    @cached_property
    def _end(self) -> TimelineEnd:
        assert self.timeline is not None
        self.steps.begin(f"Reading {self.timeline}")
        start = find_position(self.source, None if self.checkpoint is None else Path(self.checkpoint))
        return read_to_end(Path(self.timeline), start, self.last_epoch)

    @cached_property
    def position(self) -> Position | None:
        """The place of the source in the timeline of its training run; None if it has no weights that can change."""
        if self.timeline is not None:
            return self._end.position
        self.steps.begin("Identifying the weights")
        try:
            return find_position(self.source, None if self.checkpoint is None else Path(self.checkpoint))
        except ConversionError:
            return None

    def run(self) -> Report:
        """Convert the model.

        If the outputs of the result differ from those of the source, convert again without the passes and sites that
        cause it.
        """
        self.load_libraries()
        # The time to import TensorFlow does not depend on the model.
        begun = time.monotonic()
        report = Attempts(self._attempt, self.steps).run()
        report.seconds = time.monotonic() - begun
        return report

    def advance(self, _name: str, count: int) -> None:
        """Report the progress of a step, in its unit."""
        self.steps.advance(count)

    def _attempt(self, choice: Choice, place: bool) -> Report:
        """Convert without the parts in `choice.left_out`; if `place` is False, only test whether that passes."""
        self.steps.begin(f"Reading {self.source}")
        model = self.read()
        check_restored(model)
        report = self._rewrite(model, choice)
        self._check_runs(report)
        if self.target is None:
            report.target = describe_target(model)
            return report
        try:
            self._put_in_place(model, report, self.target, place)
        except VerificationError as error:
            error.passes = [*report.passes, *getattr(report, "fused", [])]
            raise
        except _OnlyTriedError:
            pass
        return report

    def _rewrite(self, model: Model, choice: Choice) -> Report:
        """Run all passes and describe what they did."""
        report = self.begin(model)
        origin = set(model.graph.nodes)
        self.steps.begin("Rewriting the graph")
        with naming(self.source):
            report.passes = self.rewrite(model, choice)
            report.tables = model.table_records
            if self.dry_run:
                report.tables = with_files(model, report.tables)
                recorded = [request for file in self.requests for request in read_requests(file, model.signatures)]
                report.tiers = forecast_tiers(model, report.tables, self.options.tier_memory, recorded)
            self.fuse(model, report, choice)
        report.removed = describe_removals(model, origin)
        report.left_out = list(choice.left_out)
        report.unknown_ops = unknown_ops(model)
        return report

    def _check_runs(self, report: CutReport) -> None:
        """Raise `ConversionError` if a verification is due and TensorFlow does not have all ops of the result."""
        if report.unknown_ops and self.check and self.target is not None:
            listed = "; ".join(f"{op.op} ({op.place}, needed by {op.output})" for op in report.unknown_ops)
            count = len(report.unknown_ops)
            raise ConversionError(
                f"{self.source}: {count} unknown op{'s' * (count > 1)}: {listed}, expected ops that TensorFlow runs, "
                "so that both models can be compared; name a library that has them with --op-library, or leave out the "
                "comparison with --no-verify"
            )

    def _put_in_place(self, model: Model, report: Report, target: Path, place: bool) -> None:
        store = None if self.table_store is None else TableStore(self.table_store)
        tables = TableOutput(store, self.options.memory_limit)
        with staged(target) as folder:
            digests = self.write(model, folder, tables)
            if self.check:
                self._verify(model, folder, report)
            if not place:
                raise _OnlyTriedError
            self.complete(model, report, folder, tables)
            if self.position is not None:
                write_lineage(folder, self.position)
            write_manifest(report, folder, digests)
            report.target = describe_target(model, folder)
            report.target.path = str(target)

    def _verify(self, model: Model, folder: Path, report: CutReport) -> None:
        found = verify(
            self.read(),
            folder,
            requests=self.requests,
            samples=self.samples,
            tolerance=self.tolerance,
            memory_limit=self.options.memory_limit,
            seed=self.seed,
            lossy=report.lossy,
            tables=lambda _, result: table_pairs(model, result),
            progress=self.steps,
        )
        found.b.path = str(self.target)
        judge(found, report, self.tolerance is not None or not report.lossy, self.accept_weak_proof)


def judge(found: VerifyReport, report: CutReport, scores: bool, accept_weak_proof: bool = False) -> None:
    """Add the verification to the report, and raise an error if it failed.

    A request that only the source refuses is not a difference: the result no longer has the assertions of the source,
    and the report lists the removed ones. If the result is lossy and no tolerance was given (`scores` is False),
    differences between outputs are reported, and only the wide limit `FAR` applies to them. NaN, shapes, dtypes and
    refusals are compared as always.

    Raises
    ------
    VerificationError
        The outputs of the models differ.
    WeakProofError
        The requests cover too little to prove that the models are equal.
    """
    judged = replace(found, refused=[request for request in found.refused if request.b is not None])
    if not scores:
        # If rows were dropped on request, scores may change by any amount.
        limited = not any(table.lossy_rows for table in report.tables)
        broken = [
            output
            for output in found.outputs
            if output.shapes or "!=" in output.dtype or output.nan_apart or (limited and output.far)
        ]
        judged = replace(judged, outputs=broken, tables=[])
    found.verdict = reasons = judged.differences()
    report.verification, report.scores_judged = found, scores
    place = f"{found.b.path}: not written"
    if reasons:
        more = f"; and {len(reasons) - _SAID} more" if len(reasons) > _SAID else ""
        raise VerificationError(
            f"{place}, since its outputs differ from those of {found.a.path}: {'; '.join(reasons[:_SAID])}{more}",
            report.to_json(),
        )
    if found.weak and not accept_weak_proof:
        raise WeakProofError(
            f"{place}, since the proof is weak: {'; '.join(found.weak[:_SAID])}; send recorded requests with "
            "--requests, or accept it as it is with --accept-weak-proof",
            report.to_json(),
        )

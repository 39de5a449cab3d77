# SPDX-License-Identifier: Apache-2.0
"""What `cut`, `fuse` and `optimize` do alike: read, rewrite, write beside, prove equal, and only then put in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from graph_tools.errors import ConversionError, UnreadableError, UsageError, VerificationError, WeakProofError, naming
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.readers.saved_tables import TableOutput
from graph_tools.readers.unknown_ops import check_restored, unknown_ops
from graph_tools.report.cut import CutReport, describe_removals, describe_target, table_bytes
from graph_tools.report.manifest import write_manifest
from graph_tools.rewriting.protocol import PassResult
from graph_tools.store.table_store import TableStore
from graph_tools.tensors import byte_size
from graph_tools.verbs.leaving_out import Attempts, Choice
from graph_tools.verbs.staging import check_place, staged
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.pairs import table_pairs
from graph_tools.writer import saved_tensors, write_saved_model

_SAID = 3
"""Reasons that the message of a failed verification gives; the report has all."""

Report = TypeVar("Report", bound=CutReport)


class _OnlyTriedError(Exception):
    """A result passed its verification, and is not to be put in place."""


@dataclass
class Conversion:
    """What is asked of a conversion, whichever it is; the parameters of `cut` explain it.

    Raises
    ------
    UnreadableError, UsageError
        An option is wrong, or a file of requests is not there.
    """

    source: Path
    target: Path | None
    signatures: Sequence[str] = ()
    outputs: Sequence[str] = ()
    checkpoint: str | Path | None = None
    options: CutOptions = field(default_factory=CutOptions)
    requests: Sequence[str | Path] = ()
    samples: int = SAMPLES
    tolerance: Tolerance | str | None = None
    dry_run: bool = False
    check: bool = True
    accept_weak_proof: bool = False
    seed: int = 0
    table_store: Path | None = None
    progress: Progress = field(default_factory=Silent)

    def __post_init__(self) -> None:
        if self.dry_run:
            self.target = None
        elif self.target is None:
            raise UsageError("OUT: none given, expected a folder to write (or --dry-run)")
        else:
            check_place(self.target, self.source)
        if isinstance(self.tolerance, str):
            self.tolerance = Tolerance.parse(self.tolerance)
        for file in self.requests:
            if not Path(file).exists():
                raise UnreadableError(f"{file}: not there, expected a file with requests")

    def read(self) -> Model:
        """Read the source."""
        return read_model(
            self.source,
            signatures=tuple(self.signatures),
            outputs=tuple(self.outputs),
            checkpoint=self.checkpoint,
            absent_key=dict(self.options.absent_key),
        )

    def run(
        self,
        begin: Callable[[Model], Report],
        rewrite: Callable[[Model, Choice], list[PassResult]],
        fuse: Callable[[Model, Report, Choice], None] | None = None,
        settle: Callable[[Model, Report, Path, TableOutput], None] | None = None,
    ) -> Report:
        """Convert.

        Parameters
        ----------
        begin : callable
            Makes the report, of the model as it was read.
        rewrite : callable
            Runs the passes of `cut`.
        fuse : callable, optional
            Goes on with the model.
        settle : callable, optional
            Decides, after the verification, what the written folder still has to say.

        Where the result answers differently, the passes and sites that make it do so are left out.
        """
        begun = time.monotonic()

        def attempt(choice: Choice, place: bool) -> Report:
            return self._attempt(choice, place, begin, rewrite, fuse, settle)

        report = Attempts(attempt, self.progress).run()
        report.seconds = time.monotonic() - begun
        return report

    def _attempt(
        self,
        choice: Choice,
        place: bool,
        begin: Callable[[Model], Report],
        rewrite: Callable[[Model, Choice], list[PassResult]],
        fuse: Callable[[Model, Report, Choice], None] | None,
        settle: Callable[[Model, Report, Path, TableOutput], None] | None,
    ) -> Report:
        """Convert without what a choice leaves out; without `place` only to see whether that passes."""
        told = self.progress
        told.begin(f"Reading {self.source}")
        model = self.read()
        check_restored(model)
        report = begin(model)
        origin = set(model.graph.nodes)
        told.begin("Rewriting the graph")
        with naming(self.source):
            report.passes = rewrite(model, choice)
        report.tables = model.table_records
        if fuse is not None:
            with naming(self.source):
                fuse(model, report, choice)
        report.removed = describe_removals(model, origin)
        report.left_out = list(choice.left_out)
        report.unknown_ops = unknown_ops(model)
        self._check_runs(report)
        if self.target is None:
            report.target = describe_target(model)
        else:
            try:
                self._put_in_place(model, report, self.target, settle, place)
            except VerificationError as error:
                error.passes = [*report.passes, *getattr(report, "fused", [])]
                raise
            except _OnlyTriedError:
                pass
        return report

    def _check_runs(self, report: CutReport) -> None:
        """Check that what is to be compared can be run."""
        if report.unknown_ops and self.check and self.target is not None:
            listed = "; ".join(f"{one.op} ({one.place}, needed by {one.output})" for one in report.unknown_ops)
            count = len(report.unknown_ops)
            raise ConversionError(
                f"{self.source}: {count} unknown op{'s' * (count > 1)}: {listed}, expected ops that TensorFlow runs, "
                "so that both models can be compared; --op-library names a library that has them, --no-verify leaves "
                "them as they are without a proof"
            )

    def _put_in_place(
        self,
        model: Model,
        report: Report,
        target: Path,
        settle: Callable[[Model, Report, Path, TableOutput], None] | None,
        place: bool,
    ) -> None:
        tables = TableOutput(
            None if self.table_store is None else TableStore(self.table_store), self.options.memory_limit
        )
        with staged(target) as folder:
            digests = self._write(model, folder, tables)
            if self.check:
                self._verify(model, folder, report)
            if not place:
                raise _OnlyTriedError
            if settle is not None:
                settle(model, report, folder, tables)
            write_manifest(report, folder, digests)
            report.target = describe_target(model, folder)
            report.target.path = str(target)

    def _write(self, model: Model, folder: Path, tables: TableOutput) -> dict[Path, str]:
        told = self.progress
        size = sum(byte_size(tensor) for tensor in saved_tensors(model).values())
        told.begin("Writing", size + sum(table_bytes(model).values()), "bytes")
        with naming(self.source, folder):
            return write_saved_model(model, folder, lambda _, count: told.advance(count), True, tables)

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
            progress=self.progress,
        )
        found.b.path = str(self.target)
        judge(found, report, self.tolerance is not None or not report.lossy, self.accept_weak_proof)


def judge(found: VerifyReport, report: CutReport, scores: bool, accept_weak_proof: bool = False) -> None:
    """Enter the verification into the report.

    A request that only the source refuses is no difference: a check that only the source makes went with its
    assertions, and the report lists it. Where the result is lossy and no tolerance was given (`scores` False), how far
    outputs differ is reported, and judged by a wide limit (`FAR`) only; NaN, shapes, dtypes and refusals are as ever.

    Raises
    ------
    VerificationError
        The models do not answer alike, or too little was asked to say so.
    """
    judged = replace(found, refused=[one for one in found.refused if one.b is not None])
    if not scores:
        # Rows that were dropped on request may change a score as far as they like.
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
            f"{place}, since it does not answer as {found.a.path}: {'; '.join(reasons[:_SAID])}{more}", report.to_json()
        )
    if found.weak and not accept_weak_proof:
        raise WeakProofError(
            f"{place}, since the proof is weak: {'; '.join(found.weak[:_SAID])}; recorded requests (--requests) make "
            "it stronger, --accept-weak-proof takes it as it is",
            report.to_json(),
        )

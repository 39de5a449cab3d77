# SPDX-License-Identifier: Apache-2.0
"""Cut: read a model, rewrite it for serving, write it, prove it equal, and only then put it in place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from graph_tools.errors import UnreadableError, UsageError, VerificationError, naming
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes import serving_passes
from graph_tools.passes.base import PassResult, run_passes
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.report.cut import CutReport, describe_removals, describe_source, describe_target
from graph_tools.report.manifest import write_manifest
from graph_tools.staging import check_place, staged
from graph_tools.tables.analysis import Progress as TableProgress
from graph_tools.tensors import byte_size
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.pairs import table_pairs
from graph_tools.writer import saved_tensors, write_saved_model

_SAID = 3
"""Reasons that the message of a failed verification gives; the report has all."""


def cut(
    source: str | Path,
    target: str | Path | None,
    *,
    signatures: Sequence[str] = (),
    outputs: Sequence[str] = (),
    checkpoint: str | Path | None = None,
    options: CutOptions | None = None,
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    dry_run: bool = False,
    check: bool = True,
    progress: Progress | None = None,
) -> CutReport:
    """Cut an exported model down to what serving needs.

    Parameters
    ----------
    source : path
        SavedModel folder or frozen GraphDef; it is only read.
    target : path or None
        Folder to write a SavedModel into; it must not be there. Not looked at with `dry_run`.
    signatures, outputs : sequence of str
        What to keep; none: all.
    checkpoint : path, optional
        Prefix of a checkpoint to take the weights from, or the folder of a system's table files.
    options : CutOptions, optional
    requests, samples, tolerance
        As `verify` takes them.
    dry_run : bool
        Write nothing; the report forecasts bytes per table and technique.
    check : bool
        Compare the result with the source before it is put in place.
    progress : optional
        Told about each step.

    Returns
    -------
    CutReport

    Raises
    ------
    UnreadableError, UsageError
        An input is damaged, or an option names what is not there; nothing was written.
    ConversionError
        The model cannot be converted without changing what it computes; nothing was written.
    VerificationError
        Scores differ by more than the tolerance; nothing was left behind, and `report` of the error has the figures.
    """
    options, told, begun = options or CutOptions(), progress or Silent(), time.monotonic()
    place = _place(target, Path(source), dry_run)
    if isinstance(tolerance, str):
        tolerance = Tolerance.parse(tolerance)
    for file in requests:
        if not Path(file).exists():
            raise UnreadableError(f"{file}: not there, expected a file with requests")
    told.begin(f"Reading {source}")
    model = _read(source, signatures, outputs, checkpoint, options)
    report = CutReport(describe_source(model), _options(options), dry_run=dry_run)
    origin = set(model.graph.nodes)
    told.begin("Rewriting the graph")
    with naming(source):
        report.passes = rewrite(model, options, lambda _, count: told.advance(count))
    report.tables = model.table_records
    report.removed = describe_removals(model, origin)
    if place is None:
        report.target = describe_target(model)
        report.seconds = time.monotonic() - begun
        return report
    with staged(place) as folder:
        told.begin("Writing", sum(byte_size(tensor) for tensor in saved_tensors(model).values()), "bytes")
        with naming(source, folder):
            digests = write_saved_model(model, folder, lambda _, count: told.advance(count), digest=True)
        if check:
            found = verify(
                _read(source, signatures, outputs, checkpoint, options),
                folder,
                requests=requests,
                samples=samples,
                tolerance=tolerance,
                memory_limit=options.memory_limit,
                tables=lambda _, result: table_pairs(model, result),
                progress=told,
            )
            found.b.path = str(place)
            _judge(found, report, tolerance is not None or not report.lossy)
        write_manifest(report, folder, digests)
        report.target = describe_target(model, folder)
        report.target.path = str(place)
        report.seconds = time.monotonic() - begun
    return report


def rewrite(model: Model, options: CutOptions, progress: TableProgress | None = None) -> list[PassResult]:
    """Run the passes of `cut` over a model as it was read.

    Raises
    ------
    UsageError
        An option names a table that the model does not have.
    ConversionError
        A kept output needs an op that stock TensorFlow does not have.
    """
    results = run_passes(model, serving_passes(options, progress))
    options.check_names((one["name"] for one in model.table_records), model.merged_tables)
    check_unknown_ops(model)
    return results


def _read(
    source: str | Path,
    signatures: Sequence[str],
    outputs: Sequence[str],
    checkpoint: str | Path | None,
    options: CutOptions,
) -> Model:
    return read_model(
        source,
        signatures=tuple(signatures),
        outputs=tuple(outputs),
        checkpoint=checkpoint,
        absent_key=dict(options.absent_key),
    )


def _place(target: str | Path | None, source: Path, dry_run: bool) -> Path | None:
    """Check where the result goes; None: nowhere."""
    if dry_run:
        return None
    if target is None:
        raise UsageError("OUT: none given, expected a folder to write (or --dry-run)")
    check_place(Path(target), source)
    return Path(target)


def _options(options: CutOptions) -> dict[str, object]:
    data = asdict(options)
    return {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}


def _judge(found: VerifyReport, report: CutReport, scores: bool) -> None:
    """Enter the verification into the report.

    A request that only the source refuses is no difference: a check that only the source makes went with its
    assertions, and the report lists it. Where the result is lossy and no tolerance was given (`scores` False), how far
    outputs differ is reported and not judged; NaN, shapes, dtypes and refusals are.

    Raises
    ------
    VerificationError
        The models do not answer alike.
    """
    judged = replace(found, refused=[one for one in found.refused if one.b is not None])
    if not scores:
        broken = [one for one in found.outputs if one.shapes or "!=" in one.dtype or one.nan_a != one.nan_b]
        judged = replace(judged, outputs=broken, tables=[])
    reasons = judged.reasons()
    report.verification = found.to_json() | {"passed": not reasons, "reasons": reasons}
    report.scores_judged = scores
    if reasons:
        more = f"; and {len(reasons) - _SAID} more" if len(reasons) > _SAID else ""
        place = f"{found.b.path}: not written, since it does not answer as {found.a.path}"
        raise VerificationError(f"{place}: {'; '.join(reasons[:_SAID])}{more}", report.to_json())

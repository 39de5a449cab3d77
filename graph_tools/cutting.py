# SPDX-License-Identifier: Apache-2.0
"""Cut: read a model, rewrite it for serving, write it, prove it equal, and only then put it in place."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from graph_tools.errors import UsageError, VerificationError
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes import serving_passes
from graph_tools.passes.base import PassResult, run_passes
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.report.cut import CutReport, describe_removals, describe_source, describe_target
from graph_tools.report.manifest import write_manifest
from graph_tools.tables.analysis import Progress as TableProgress
from graph_tools.tensors import byte_size
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.pairs import table_pairs
from graph_tools.writer import saved_tensors, write_saved_model


class Progress(Protocol):
    """Whoever wants to know how far a cut is."""

    def begin(self, text: str, total: int | None = None) -> None: ...
    def advance(self, count: int) -> None: ...


class _Silent:
    def begin(self, text: str, total: int | None = None) -> None: ...
    def advance(self, count: int) -> None: ...


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
        Folder to write a SavedModel into; it must not be there. None only with `dry_run`.
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
    options, told, begun = options or CutOptions(), progress or _Silent(), time.monotonic()
    place = _place(target, Path(source), dry_run)
    if isinstance(tolerance, str):
        tolerance = Tolerance.parse(tolerance)
    told.begin(f"Reading {source}")
    model = _read(source, signatures, outputs, checkpoint, options)
    report = CutReport(describe_source(model), _options(options), dry_run=dry_run)
    origin = set(model.graph.nodes)
    told.begin("Rewriting the graph")
    report.passes = rewrite(model, options, lambda _, count: told.advance(count))
    report.tables = model.table_records
    report.removed = describe_removals(model, origin)
    if place is None:
        report.target = describe_target(model)
        report.seconds = time.monotonic() - begun
        return report
    sibling = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        told.begin("Writing", sum(byte_size(tensor) for tensor in saved_tensors(model).values()))
        write_saved_model(model, sibling, lambda _, count: told.advance(count))
        if check:
            reference = _read(source, signatures, outputs, checkpoint, options)
            found = verify(
                reference,
                sibling,
                requests=requests,
                samples=samples,
                tolerance=tolerance,
                memory_limit=options.memory_limit,
                tables=lambda _, result: table_pairs(model, result),
                progress=told,
            )
            report.verification = _judged(found, tolerance is not None or not is_lossy(options))
        report.target = describe_target(model, sibling)
        write_manifest(report, sibling)
        report.target.path = str(place)
        report.seconds = time.monotonic() - begun
        sibling.rename(place)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)
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
    options.check_names(one["name"] for one in model.table_records)
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
    place = Path(target)
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place}: is there already, expected a folder that does not exist")
    if source.resolve() in place.resolve().parents:
        raise UsageError(f"{place}: lies inside the source, expected a folder elsewhere")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _options(options: CutOptions) -> dict[str, object]:
    data = asdict(options)
    return {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}


def _judged(found: VerifyReport, numbers: bool) -> dict[str, Any]:
    """Return the verification as JSON where the models answer alike, else raise.

    A request that only the source refuses is no difference: a check that only the source makes went with its
    assertions, and its report lists it. Where the options ask for other scores and no tolerance was given (`numbers`
    False), how far scores differ is reported and not judged; NaN, shapes, dtypes and refusals are.
    """
    judged = replace(found, refused=[one for one in found.refused if one.b is not None])
    if not numbers:
        broken = [one for one in found.outputs if one.shapes or "!=" in one.dtype or one.nan_a != one.nan_b]
        judged = replace(judged, outputs=broken, tables=[])
    reasons = judged.reasons()
    data = found.to_json()
    if reasons:
        raise VerificationError("; ".join(reasons[:3]), data)
    return data | {"passed": True, "reasons": []}


def is_lossy(options: CutOptions) -> bool:
    """Say whether the options ask for a result whose scores differ; the difference is reported, not judged."""
    types = {options.embedding_dtype, *options.tensor_types.values()}
    return types != {"fp32"} or options.min_norm > 0 or options.min_frequency > 0

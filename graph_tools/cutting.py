# SPDX-License-Identifier: Apache-2.0
"""Cut: rewrite a model for serving with the ops of stock TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graph_tools.conversion import Conversion, plain_options
from graph_tools.errors import UsageError
from graph_tools.model import Model
from graph_tools.op_library import our_ops
from graph_tools.options import CutOptions
from graph_tools.passes import serving_passes
from graph_tools.passes.base import PassResult, run_passes
from graph_tools.progress import Progress, Silent
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.report.cut import CutReport, describe_source
from graph_tools.tables.analysis import Progress as TableProgress
from graph_tools.verification import SAMPLES, Tolerance


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
    options, told = options or CutOptions(), progress or Silent()
    asked = Conversion(
        Path(source),
        None if target is None else Path(target),
        signatures=signatures,
        outputs=outputs,
        checkpoint=checkpoint,
        options=options,
        requests=requests,
        samples=samples,
        tolerance=tolerance,
        dry_run=dry_run,
        check=check,
        progress=told,
    )

    def begin(model: Model) -> CutReport:
        fused = our_ops(model.graph)
        if fused:
            raise UsageError(
                f"{model.path}: it uses {', '.join(fused)}, expected a model that is not fused yet; "
                "`graph-tools fuse` takes it"
            )
        return CutReport(describe_source(model), plain_options(options), dry_run=dry_run)

    return asked.run(
        begin,
        lambda model: rewrite(model, options, lambda _, count: told.advance(count)),
    )


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

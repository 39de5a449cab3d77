# SPDX-License-Identifier: Apache-2.0
"""Cut: rewrite a model for serving with the ops of stock TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graph_tools.errors import UsageError
from graph_tools.graph.op_library import Libraries, our_ops, require_for
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut import check_skipped, cutting_pass_names, serving_passes
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.progress import Progress
from graph_tools.report.cut import CutReport, describe_source
from graph_tools.rewriting.protocol import Pass, PassResult, run_passes
from graph_tools.tables.analysis import Progress as TableProgress
from graph_tools.verbs.convert import Conversion
from graph_tools.verbs.leaving_out import Choice
from graph_tools.verification import SAMPLES, Tolerance


def cut(
    source: str | Path,
    target: str | Path | None,
    *,
    signatures: Sequence[str] = (),
    outputs: Sequence[str] = (),
    checkpoint: str | Path | None = None,
    timeline: str | Path | None = None,
    last_epoch: int | None = None,
    options: CutOptions | None = None,
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    dry_run: bool = False,
    check: bool = True,
    accept_weak_proof: bool = False,
    seed: int = 0,
    op_library: Libraries = None,
    progress: Progress | None = None,
) -> CutReport:
    """Cut an exported model down to what serving needs.

    Parameters
    ----------
    source : path
        SavedModel folder or frozen GraphDef; it is only read.
    target : path or None
        Folder to write a SavedModel into; it must not exist. Ignored if `dry_run` is set.
    signatures, outputs : sequence of str
        Signatures and outputs to keep; all of them if empty.
    checkpoint : path, optional
        Prefix of a checkpoint with the weights, or the folder with the table files of a training system.
    timeline : path, optional
        Folder of a timeline (docs/delta_format.md) that continues the source; its changes are laid over the weights.
    last_epoch : int, optional
        The epoch of the timeline to stop at; by default its end.
    options : CutOptions, optional
    requests, samples, tolerance, seed, op_library
        As in `verify`. If a model has ops that no library has, it cannot be compared.
    dry_run : bool
        Write nothing; the report is a forecast.
    check : bool
        Compare the result with the source before it is put in place.
    accept_weak_proof : bool
        Put the result in place even if the requests cover too little to prove that both models are equal; see `weak` in
        the report.
    progress : Progress, optional
        Receives a call for each step.

    Returns
    -------
    CutReport

    Raises
    ------
    UnreadableError, UsageError
        An input is damaged, or an option names something that does not exist; nothing was written.
    ConversionError
        The model cannot be converted without changing what it computes; nothing was written.
    VerificationError
        Scores differ by more than the tolerance; nothing was left behind, and the attribute `report` of the error
        contains the figures.
    """
    return _CutConversion(
        Path(source),
        None if target is None else Path(target),
        signatures=signatures,
        outputs=outputs,
        checkpoint=checkpoint,
        timeline=timeline,
        last_epoch=last_epoch,
        options=options or CutOptions(),
        requests=requests,
        samples=samples,
        tolerance=tolerance,
        dry_run=dry_run,
        check=check,
        accept_weak_proof=accept_weak_proof,
        seed=seed,
        op_library=op_library,
        progress=progress,
    ).run()


class _CutConversion(Conversion[CutReport]):
    """Rewrites a model that is not fused with the passes of `cut` only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_skipped(self.options.skip_passes, cutting_pass_names())

    def begin(self, model: Model) -> CutReport:
        fused = our_ops(model.graph)
        if fused:
            raise UsageError(
                f"{model.path}: contains {', '.join(fused)}, expected a model that is not fused yet; "
                "`graph-tools fuse` accepts it"
            )
        return CutReport(describe_source(model), self.options, dry_run=self.dry_run)

    def rewrite(self, model: Model, choice: Choice) -> list[PassResult]:
        return rewrite(model, self.options, self.advance, choice)


def rewrite(
    model: Model,
    options: CutOptions,
    progress: TableProgress | None = None,
    choice: Choice | None = None,
    before_tables: Pass | None = None,
) -> list[PassResult]:
    """Run the passes of `cut` on a model as it was read.

    Parameters
    ----------
    before_tables : Pass, optional
        Runs when lookups are in their simplest form, before tables are stored otherwise.

    Raises
    ------
    UsageError
        An option names a table that the model does not have.
    UnreadableError
        The graph has ops of libprocessor, but the library is missing or too old.
    """
    passes = (choice or Choice()).select(serving_passes(options, progress))
    if before_tables is not None:
        place = next(i for i, each in enumerate(passes) if each.name == ConvertSparseLookups.name)
        passes.insert(place, before_tables)
    results = run_passes(model, passes, options.skip_passes)
    options.check_names((record.name for record in model.table_records), model.merged_tables)
    require_for(model.graph, model.path)
    return results

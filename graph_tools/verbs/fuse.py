# SPDX-License-Identifier: Apache-2.0
"""Fuse: replace subgraphs by ops of libprocessor, and prove that scores stay equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from graph_tools.analysis.contractions import drop_marks, mark_contractions
from graph_tools.analysis.user_rows import all_user_inputs
from graph_tools.graph import Output
from graph_tools.graph.op_library import Libraries, load_library, require_for
from graph_tools.model import Model
from graph_tools.options import CutOptions, FuseOptions
from graph_tools.passes.cut import check_skipped, cutting_pass_names
from graph_tools.passes.cut.move_constants import MoveConstants
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.cut.shorten_names import ShortenNames
from graph_tools.passes.fuse import fusing_pass_names, fusing_passes
from graph_tools.progress import Progress
from graph_tools.readers.saved_tables import TableOutput
from graph_tools.report.cut import describe_source
from graph_tools.report.fuse import FusedPass, FuseReport, describe_sites, our_nodes
from graph_tools.report.live import Live
from graph_tools.report.table_files import describe_table_files
from graph_tools.rewriting.follow_variables import follow_variables, settle_weights
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.verbs.convert import Conversion
from graph_tools.verbs.cut import rewrite
from graph_tools.verbs.exports import check_export
from graph_tools.verbs.leaving_out import Choice
from graph_tools.verbs.live import check_followable, make_live
from graph_tools.verbs.precision import decide
from graph_tools.verbs.tower_precision import set_precision
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.generate import Generator
from graph_tools.verification.timing import Trace, measure


def fuse(
    source: str | Path,
    target: str | Path | None,
    *,
    memory_limit: int = CutOptions.memory_limit,
    precision: str = "auto",
    max_auc_loss: float = FuseOptions.max_auc_loss,
    skip_passes: Sequence[str] = (),
    table_store: str | Path | None = None,
    user_inputs: Sequence[str] = (),
    timing: bool = False,
    live: bool = False,
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    dry_run: bool = False,
    check: bool = True,
    accept_weak_proof: bool = False,
    seed: int = 0,
    op_library: Libraries = None,
    progress: Progress | None = None,
) -> FuseReport:
    """Replace a model's lookups, interactions and dense layers by fused ops.

    The model need not be cut: the passes of `cut` run first, without options. The result runs in libprocessor, and in
    TensorFlow after `tf.load_op_library`.

    Parameters
    ----------
    source : path
        SavedModel folder or frozen GraphDef; it is only read.
    target : path or None
        Folder to write a SavedModel into; it must not exist. Ignored if `dry_run` is set.
    memory_limit : int [bytes]
    precision : str
        Precision of dense layers: `fp32`; `bf16`, for which a CPU must support bf16 to load the model; `int8` on CPUs
        that have int8 arithmetic; `auto`: int8 if recorded requests permit it, else bf16 on CPUs that support it,
        provided that no output loses more than 0.001 of AUC, or of rank correlation with the scores of fp32, on the
        requests. If `check` is False or the proof is weak, `auto` means fp32.
    max_auc_loss : float
        Largest loss of AUC for which `auto` permits int8; for requests without labels, of rank correlation. Layers that
        lose too much stay bf16.
    skip_passes : sequence of str
        Names of passes to skip.
    table_store : path, optional
        Folder for table files that all artifacts share by links; None: the artifact contains its own table files.
    user_inputs : sequence of str
        Names or patterns (`fnmatch`) of inputs that describe the user, if the rows of a request are items. The user's
        part of the graph is computed once per request. A request may have one row of these inputs, or equal rows, one
        per item.
    timing : bool
        Trace the source with the generated requests: `timing` in the report gives the share of the time that is spent
        in parts that were not fused.
    live : bool
        Let the model follow deltas while it is served: each weight is a formula of the source's variables, and each
        table keeps the name of its source table. The source must be the export of the training system.
    requests, samples, tolerance, dry_run, check, accept_weak_proof, seed, progress
        As in `cut`.
    op_library : path or sequence of path, optional
        libprocessor.so and libraries with other ops. If it does not contain libprocessor.so, PROCESSOR_LIBRARY or the
        library of the installed `processor` package is used.

    Returns
    -------
    FuseReport

    Raises
    ------
    UnreadableError, UsageError
        An input is damaged, there is no library, or an option is wrong; nothing was written.
    ConversionError
        The model cannot be converted without changing what it computes; nothing was written.
    VerificationError
        Scores differ by more than the tolerance; nothing was left behind, and the attribute `report` of the error
        contains the figures.
    """
    return optimize(
        source,
        target,
        options=CutOptions(memory_limit=memory_limit),
        precision=precision,
        max_auc_loss=max_auc_loss,
        skip_passes=skip_passes,
        table_store=table_store,
        user_inputs=user_inputs,
        timing=timing,
        live=live,
        requests=requests,
        samples=samples,
        tolerance=tolerance,
        dry_run=dry_run,
        check=check,
        accept_weak_proof=accept_weak_proof,
        seed=seed,
        op_library=op_library,
        progress=progress,
    )


def optimize(
    source: str | Path,
    target: str | Path | None,
    *,
    signatures: Sequence[str] = (),
    outputs: Sequence[str] = (),
    checkpoint: str | Path | None = None,
    timeline: str | Path | None = None,
    last_epoch: int | None = None,
    options: CutOptions | None = None,
    precision: str = "auto",
    max_auc_loss: float = FuseOptions.max_auc_loss,
    skip_passes: Sequence[str] = (),
    table_store: str | Path | None = None,
    user_inputs: Sequence[str] = (),
    timing: bool = False,
    live: bool = False,
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    dry_run: bool = False,
    check: bool = True,
    accept_weak_proof: bool = False,
    seed: int = 0,
    op_library: Libraries = None,
    progress: Progress | None = None,
) -> FuseReport:
    """Cut, fuse and verify in one step: the result is compared with the original source.

    The parameters, the result and the errors are those of `cut` and `fuse`.
    """
    cutting, fusing = cutting_pass_names(), fusing_pass_names()
    check_skipped(skip_passes, [*fusing, *cutting])
    options = options or CutOptions()
    if live:
        check_followable(options)
    skipped = (*options.skip_passes, *(name for name in skip_passes if name in cutting))
    store = None if table_store is None else Path(table_store)
    return _FuseConversion(
        Path(source),
        None if target is None else Path(target),
        signatures=signatures,
        outputs=outputs,
        checkpoint=checkpoint,
        timeline=timeline,
        last_epoch=last_epoch,
        options=replace(options, skip_passes=skipped),
        table_store=store,
        fusing=FuseOptions(
            precision,
            tuple(name for name in skip_passes if name in fusing),
            tuple(user_inputs),
            store,
            max_auc_loss,
            live,
        ),
        timing=timing,
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


@dataclass
class _FuseConversion(Conversion[FuseReport]):
    """Runs the passes of `cut`, then those of `fuse`, and decides on the precision of the result."""

    fusing: FuseOptions = field(default_factory=FuseOptions)
    timing: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._formulas: dict[str, Output] = {}
        self._live: Live | None = None

    def load_libraries(self) -> None:
        super().load_libraries()
        self.library = str(load_library())

    def begin(self, model: Model) -> FuseReport:
        self.fusing.check_inputs({name: signature.inputs for name, signature in model.signatures.items()})
        if self.fusing.live:
            check_export(model, "`graph-tools optimize --live` converts it in one step")
            follow_variables(model)
        mark_contractions(model)
        report = FuseReport(describe_source(model), self.options, dry_run=self.dry_run)
        report.fuse_options, report.library = self.fusing, self.library
        return report

    def rewrite(self, model: Model, choice: Choice) -> list[PassResult]:
        # The reports of sites give the names of the source, so names are shortened last.
        return rewrite(model, replace(self.options, keep_graph_names=True), self.advance, choice)

    def fuse(self, model: Model, report: FuseReport, choice: Choice) -> None:
        self.steps.begin("Fusing")
        report.fused = [_apply(model, pass_) for pass_ in choice.select(fusing_passes(self.fusing))]
        report.user_inputs = all_user_inputs(model, self.fusing.user_inputs)
        drop_marks(model.graph)
        if self.timing:
            refused = [site for found in report.fused for site in found.refused]
            report.timing = self._trace_of_source.weigh(model.graph, refused)
        report.passes += [pass_.apply(model) for pass_ in self._tidying_passes()]
        if self.fusing.live:
            self._formulas = settle_weights(model)
        require_for(model.graph, model.path)
        set_precision(model, "fp32")
        report.note_ops(model)

    def write(self, model: Model, folder: Path, tables: TableOutput) -> dict[Path, str]:
        digests = super().write(model, folder, tables)
        if self.fusing.live:
            self._live = make_live(model, self._formulas, folder, tables.files, self.position)
        return digests

    def complete(self, model: Model, report: FuseReport, folder: Path, tables: TableOutput) -> None:
        compare = self._compare_precisions if self.check else None
        report.table_files = describe_table_files(tables.files)
        report.precision = decide(model, folder, tables.files, self.fusing, compare)
        report.live = self._live
        report.note_ops(model)

    def _tidying_passes(self) -> list[Pass]:
        passes: list[Pass] = [PruneUnreachable(), MoveConstants()]
        return passes if self.options.keep_graph_names else [*passes, ShortenNames()]

    @cached_property
    def _trace_of_source(self) -> Trace:
        """Where the source spends its time; further attempts, which skip passes or sites, do not change that."""
        self.steps.begin("Tracing the source")
        source = self.read()
        generators = [Generator(source, name=name, seed=self.seed) for name in source.signatures]
        return measure(source, [request for generator in generators for request in generator.requests(self.samples)])

    def _compare_precisions(self, a: Path, b: Path, described: str, recorded_only: bool) -> VerifyReport:
        self.steps.begin(f"Comparing fp32 with {described}")
        return verify(
            a,
            b,
            requests=self.requests,
            samples=0 if recorded_only else self.samples,
            tolerance=self.tolerance,
            memory_limit=self.options.memory_limit,
            seed=self.seed,
            asking=self.read(),
            rounding=False,
            progress=self.steps,
        )


def _apply(model: Model, pass_: Pass) -> FusedPass:
    """Run a pass, and list the fused ops that it added."""
    before = {(name, node.op) for name, node in our_nodes(model.graph).items()}
    found = pass_.apply(model)
    return FusedPass(**vars(found), sites=describe_sites(model, before))

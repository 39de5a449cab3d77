# SPDX-License-Identifier: Apache-2.0
"""Fuse: replace subgraphs by ops of libprocessor, and prove that scores stay equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from graph_tools.analysis.contractions import drop_marks, mark_contractions
from graph_tools.analysis.user_rows import all_user_inputs
from graph_tools.graph.op_library import Libraries, load_libraries, load_library, require_for
from graph_tools.model import Model
from graph_tools.options import CutOptions, FuseOptions
from graph_tools.passes.cut import check_skipped, cutting_pass_names
from graph_tools.passes.cut.move_constants import MoveConstants
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.cut.shorten_names import ShortenNames
from graph_tools.passes.fuse import fusing_pass_names, fusing_passes
from graph_tools.progress import Progress, Silent
from graph_tools.readers.saved_tables import TableOutput
from graph_tools.report.cut import describe_source
from graph_tools.report.fuse import FusedPass, FuseReport, describe_sites, our_nodes
from graph_tools.report.table_files import describe_table_files
from graph_tools.rewriting.protocol import Pass
from graph_tools.verbs.convert import Conversion
from graph_tools.verbs.cut import rewrite
from graph_tools.verbs.leaving_out import Choice
from graph_tools.verbs.precision import decide, set_precision
from graph_tools.verification import SAMPLES, Tolerance, VerifyReport, verify
from graph_tools.verification.generate import Generator
from graph_tools.verification.timing import Trace, measure


def fuse(
    source: str | Path,
    target: str | Path | None,
    *,
    precision: str = "auto",
    skip_passes: Sequence[str] = (),
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    table_store: str | Path | None = None,
    op_library: Libraries = None,
    user_inputs: Sequence[str] = (),
    memory_limit: int = CutOptions.memory_limit,
    dry_run: bool = False,
    check: bool = True,
    accept_weak_proof: bool = False,
    seed: int = 0,
    timing: bool = False,
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
    precision : str
        Precision of dense layers: `fp32`; `bf16`, for which a CPU must support bf16 to load the model; `auto`: bf16 on
        CPUs that support it, provided that no output loses more than 0.001 of AUC, or of rank correlation with the
        scores of fp32, on the requests.
    skip_passes : sequence of str
        Names of passes to skip.
    requests, samples, tolerance
        As in `verify`.
    table_store : path, optional
        Folder for table files that all artifacts share by links; None: the artifact contains its own table files.
    op_library : path or sequence of path, optional
        libprocessor.so; by default PROCESSOR_LIBRARY, or the library of the installed `processor` package. Further
        libraries have ops of the model that TensorFlow does not have.
    user_inputs : sequence of str
        Names or patterns (`fnmatch`) of inputs that describe the user, if the rows of a request are items. The user's
        part of the graph is computed once per request. A request may have one row of these inputs, or equal rows, one
        per item.
    memory_limit : int [bytes]
    dry_run : bool
        Write nothing; the report lists what would be fused.
    check : bool
        Compare the result with the source before it is put in place. If False, `auto` means fp32.
    accept_weak_proof : bool
        Put the result in place even if the requests cover too little to prove that both models are equal; `auto` means
        fp32 in that case.
    seed : int
        Seed of the generated requests.
    timing : bool
        Trace the source with the generated requests: `timing` in the report gives the share of the time that is spent
        in parts that were not fused.
    progress : optional
        Receives a call for each step.

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
        skip_passes=skip_passes,
        requests=requests,
        samples=samples,
        tolerance=tolerance,
        table_store=table_store,
        op_library=op_library,
        user_inputs=user_inputs,
        dry_run=dry_run,
        check=check,
        accept_weak_proof=accept_weak_proof,
        seed=seed,
        timing=timing,
        progress=progress,
    )


def optimize(
    source: str | Path,
    target: str | Path | None,
    *,
    signatures: Sequence[str] = (),
    outputs: Sequence[str] = (),
    checkpoint: str | Path | None = None,
    options: CutOptions | None = None,
    precision: str = "auto",
    skip_passes: Sequence[str] = (),
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    table_store: str | Path | None = None,
    op_library: Libraries = None,
    user_inputs: Sequence[str] = (),
    dry_run: bool = False,
    check: bool = True,
    accept_weak_proof: bool = False,
    seed: int = 0,
    timing: bool = False,
    progress: Progress | None = None,
) -> FuseReport:
    """Cut, fuse and verify in one step: the result is compared with the original source.

    The parameters, the result and the errors are those of `cut` and `fuse`.
    """
    cutting, told = options or CutOptions(), progress or Silent()
    check_skipped(skip_passes, [*fusing_pass_names(), *cutting_pass_names()])
    cutting = replace(
        cutting,
        skip_passes=(
            *cutting.skip_passes,
            *(name for name in skip_passes if name in cutting_pass_names()),
        ),
    )
    store = None if table_store is None else Path(table_store)
    left_out = tuple(one for one in skip_passes if one in fusing_pass_names())
    fusing = FuseOptions(precision, left_out, tuple(user_inputs), store)
    asked = Conversion(
        Path(source),
        None if target is None else Path(target),
        signatures=signatures,
        outputs=outputs,
        checkpoint=checkpoint,
        options=cutting,
        requests=requests,
        samples=samples,
        tolerance=tolerance,
        dry_run=dry_run,
        check=check,
        accept_weak_proof=accept_weak_proof,
        seed=seed,
        table_store=store,
        progress=told,
    )
    load_libraries(op_library)
    library = load_library()

    def begin(model: Model) -> FuseReport:
        fusing.check_inputs({name: signature.inputs for name, signature in model.signatures.items()})
        mark_contractions(model)
        report = FuseReport(describe_source(model), cutting, dry_run=dry_run)
        report.fuse_options, report.library = fusing, str(library)
        return report

    @cache
    def trace_source() -> Trace:
        # Trace only once: further attempts, which skip passes or sites, do not change the source.
        told.begin("Tracing the source")
        return _trace(asked)

    def fuse_graph(model: Model, report: FuseReport, choice: Choice) -> None:
        told.begin("Fusing")
        report.fused = [_run(model, one) for one in choice.of(fusing_passes(fusing))]
        report.user_inputs = all_user_inputs(model, fusing.user_inputs)
        drop_marks(model.graph)
        if timing:
            refused = [site for found in report.fused for site in found.refused]
            report.timing = trace_source().weigh(model.graph, refused)
        # Names are shortened last, since sites carry the names of the source until here.
        tidying: list[Pass] = [PruneUnreachable(), MoveConstants()]
        report.passes += [
            one.apply(model) for one in [*tidying, *([] if cutting.keep_graph_names else [ShortenNames()])]
        ]
        require_for(model.graph, model.path)
        set_precision(model, "fp32")
        report.note_ops(model)

    def compare(a: Path, b: Path) -> VerifyReport:
        told.begin("Comparing fp32 with bf16")
        return verify(
            a,
            b,
            requests=requests,
            samples=samples,
            tolerance=asked.tolerance,
            memory_limit=cutting.memory_limit,
            seed=seed,
            asking=asked.read(),
            rounding=False,
            progress=told,
        )

    def settle(model: Model, report: FuseReport, folder: Path, tables: TableOutput) -> None:
        report.table_files = describe_table_files(tables.files)
        report.precision = decide(model, folder, tables.files, precision, compare if check else None)

    return asked.run(
        begin,
        lambda model, choice: rewrite(
            model, replace(cutting, keep_graph_names=True), lambda _, count: told.advance(count), choice
        ),
        fuse_graph,
        settle,
    )


def _trace(asked: Conversion) -> Trace:
    original = asked.read()
    makers = [Generator(original, name=name, seed=asked.seed) for name in original.signatures]
    return measure(original, [request for maker in makers for request in maker.requests(asked.samples)])


def _run(model: Model, one: Pass) -> FusedPass:
    """Run a pass, and list the fused ops that it added."""
    before = {(name, node.op) for name, node in our_nodes(model.graph).items()}
    found = one.apply(model)
    return FusedPass(**vars(found), sites=describe_sites(model, before))

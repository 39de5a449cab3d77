# SPDX-License-Identifier: Apache-2.0
"""Compress: replace the rows of a large table by sums of a few rows of a small one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graph_tools.errors import UsageError, VerificationError
from graph_tools.graph import attribute
from graph_tools.graph.op_library import Libraries, our_ops
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.options import CutOptions
from graph_tools.progress import Progress
from graph_tools.report.compress import CompressedTable, CompressReport, OutputAuc
from graph_tools.report.cut import CutReport, describe_source
from graph_tools.rewriting.add_weights import add_variable
from graph_tools.rewriting.protocol import PassResult
from graph_tools.tables.code_fit import fit
from graph_tools.tables.code_nodes import CodeNodes
from graph_tools.tables.emit import replace_output
from graph_tools.tables.mixed_dims import RowWidth, check_widths
from graph_tools.tables.row_codes import BinaryCode, Hashes, QuotientRemainder, RowCode
from graph_tools.tensors import Array
from graph_tools.verbs.compress_variable import CompressVariable
from graph_tools.verbs.compressible import check_row_count, code_report, find_table, read_table
from graph_tools.verbs.convert import Conversion
from graph_tools.verbs.cut import rewrite
from graph_tools.verbs.leaving_out import Choice
from graph_tools.verbs.mixed_table import mix_table, turn_back
from graph_tools.verification import SAMPLES, verify

#: Largest loss of AUC by default; published for binary codes.
MAX_AUC_LOSS = 0.003


def compress(
    source: str | Path,
    target: str | Path | None,
    *,
    table: str,
    bits: int | None = None,
    blocks: int | None = None,
    cut: str = "succession",
    hashes: tuple[int, int] | None = None,
    quotient_remainder: tuple[int, int] | None = None,
    dims: Sequence[RowWidth] = (),
    without_labels: bool = False,
    max_auc_loss: float = MAX_AUC_LOSS,
    signatures: Sequence[str] = (),
    outputs: Sequence[str] = (),
    checkpoint: str | Path | None = None,
    options: CutOptions | None = None,
    requests: Sequence[str | Path] = (),
    samples: int = SAMPLES,
    dry_run: bool = False,
    seed: int = 0,
    op_library: Libraries = None,
    progress: Progress | None = None,
) -> CompressReport:
    """Fit the rows of a code to those of a table, and write the model with sums of them.

    All keys get rows, also those that the table does not contain.

    Parameters
    ----------
    source : path
        SavedModel folder or frozen GraphDef; it is only read.
    target : path or None
        Folder to write a SavedModel into; it must not exist. Ignored if `dry_run` is set.
    table : str
        Name of a table with keys; or of a variable of which lookups read rows, or of the layer that has it.
    bits, blocks, cut
        A binary code: how many bits of a hash are cut into how many blocks, and how (`succession` or `skip`).
    hashes : (int, int), optional
        Instead: so many hashes of a key, each with so many rows.
    quotient_remainder : (int, int), optional
        Instead: numbers of rows for the quotient of a key and for its remainder.
    dims : sequence of RowWidth
        Instead of a code: widths of the rows, from those of the most frequent keys on.
    without_labels : bool
        Accept a result whose AUC is not known, since no recorded request has labels.
    max_auc_loss : float
        Largest loss of an output's AUC.
    requests : sequence of path
        Recorded requests; `.npz` files may have `labels`.
    signatures, outputs, checkpoint, options, samples, dry_run, seed, op_library, progress
        As in `cut`.

    Returns
    -------
    CompressReport

    Raises
    ------
    UnreadableError, UsageError
        An input is damaged, or an option names something that does not exist; nothing was written.
    ConversionError
        The table cannot be replaced; nothing was written.
    VerificationError
        No request has labels, the AUC falls by more than the limit, or outputs other than scores differ; nothing was
        left behind, and the attribute `report` of the error contains the figures.
    """
    code = _code_of(bits, blocks, cut, hashes, quotient_remainder, dims)
    if not (requests or without_labels or dry_run):
        raise UsageError(
            "--requests: none given, expected recorded requests with labels, which tell what the AUC loses; "
            "--without-labels does without"
        )
    return _CompressConversion(
        Path(source),
        None if target is None else Path(target),
        signatures=signatures,
        outputs=outputs,
        checkpoint=checkpoint,
        options=options or CutOptions(),
        requests=requests,
        samples=samples,
        dry_run=dry_run,
        seed=seed,
        op_library=op_library,
        progress=progress,
        table=table,
        code=code,
        dims=dims,
        without_labels=without_labels,
        max_auc_loss=max_auc_loss,
    ).run()


def _code_of(
    bits: int | None,
    blocks: int | None,
    cut: str,
    hashes: tuple[int, int] | None,
    quotient_remainder: tuple[int, int] | None,
    dims: Sequence[RowWidth],
) -> RowCode | None:
    """Return the code, or None for rows of different widths."""
    given = [bits is not None or blocks is not None, hashes is not None, quotient_remainder is not None, bool(dims)]
    if sum(given) != 1 or (bits is None) != (blocks is None):
        raise UsageError("--bits and --blocks, --hashes, --quotient-remainder, --dims: expected exactly one of these")
    if dims:
        check_widths(dims)
        return None
    if hashes is not None:
        return Hashes(*hashes)
    if quotient_remainder is not None:
        return QuotientRemainder(*quotient_remainder)
    assert bits is not None
    assert blocks is not None
    return BinaryCode(bits, blocks, cut)


@dataclass
class _CompressConversion(Conversion[CompressReport]):
    """Replaces a table, then runs the passes of `cut`."""

    table: str = ""
    code: RowCode | None = None
    dims: Sequence[RowWidth] = ()
    without_labels: bool = False
    max_auc_loss: float = MAX_AUC_LOSS

    def run(self) -> CompressReport:
        """Convert the model once: leaving out passes would not bring back what a table has lost."""
        self.load_libraries()
        begun = time.monotonic()
        report = self._attempt(Choice(), True)
        report.seconds = time.monotonic() - begun
        return report

    def begin(self, model: Model) -> CompressReport:
        fused = our_ops(model.graph)
        if fused:
            raise UsageError(f"{model.path}: contains {', '.join(fused)}, expected a model that is not fused yet")
        self._report = CompressReport(describe_source(model), self.options, dry_run=self.dry_run)
        return self._report

    def rewrite(self, model: Model, choice: Choice) -> list[PassResult]:
        self.steps.begin(f"Fitting {self.table}")
        found, limit = find_table(model, self.table), self.options.memory_limit
        if found is None:
            variable = CompressVariable(self.table, self.code, self.dims, limit)
            passes = rewrite(model, self.options, self.advance, choice, variable)
            self._report.compressed = variable.compressed
            if variable.mixed is not None:
                turn_back(model, variable.mixed)
            return passes
        if self.code is not None:
            self._report.compressed = replace_table(model, *found, self.code, limit)
            self.steps.begin("Rewriting the graph")
            return rewrite(model, self.options, self.advance, choice)
        mixed, self._report.compressed = mix_table(model, *found, self.dims, limit)
        self.steps.begin("Rewriting the graph")
        passes = rewrite(model, self.options, self.advance, choice)
        turn_back(model, mixed)
        return passes

    def _verify(self, model: Model, folder: Path, report: CutReport) -> None:
        assert isinstance(report, CompressReport)
        found = verify(
            self.read(),
            folder,
            requests=self.requests,
            samples=0 if self.requests else self.samples,
            memory_limit=self.options.memory_limit,
            seed=self.seed,
            lossy=True,
            tables=lambda _, result: [],
            progress=self.steps,
        )
        found.b.path = str(self.target)
        report.verification, report.scores_judged = found, False
        report.auc = [
            OutputAuc(output.signature, output.name, output.auc_a, output.auc_b)
            for output in found.outputs
            if output.auc_a is not None and output.auc_b is not None
        ]
        broken = [
            f"output '{output.name}' differs in other things than scores"
            for output in found.outputs
            if output.shapes or "!=" in output.dtype or output.nan_apart
        ]
        broken += [
            f"output '{each.output}' loses {each.before - each.after:.4f} of its AUC of {each.before:.4f}, "
            f"expected at most {self.max_auc_loss:g} (--max-auc-loss)"
            for each in report.auc
            if each.before - each.after > self.max_auc_loss
        ]
        if not (report.auc or self.without_labels):
            broken.append("no recorded request has labels of both classes, expected some, or --without-labels")
        found.verdict = broken
        if broken:
            raise VerificationError(f"{self.target}: not written, since {'; '.join(broken)}", report.to_json())


def replace_table(model: Model, handle: str, table: SparseTable, code: RowCode, memory_limit: int) -> CompressedTable:
    """Replace the lookups in a table of a model as it was read by sums of fitted rows.

    Parameters
    ----------
    handle, table
        As `find_table` returns them.

    Raises
    ------
    UsageError
        The code has as many rows as the table.
    ConversionError
        The fit would need more memory than `memory_limit`.
    """
    check_row_count(table.name, code, table.count)
    keys, old, weights = read_table(table, memory_limit)
    fitted = fit(code, keys, old, weights)
    _replace_lookups(model, handle, table, code, fitted.rows)
    return code_report(table.name, old.shape, table.source_bytes, code, fitted, weights is not None)


def _replace_lookups(model: Model, handle: str, table: SparseTable, code: RowCode, rows: Array) -> None:
    import tensorflow as tf

    graph = model.graph
    variable = add_variable(model, f"{table.name}/code_rows", rows).output()
    for node in lookups(graph, handle):
        nodes = CodeNodes(graph, code, variable, node.name)
        found, dtype = nodes.look_up(node.inputs[0], attribute(node, "Tkeys")), attribute(node, "dtype")
        if dtype != tf.float32:
            cast = {"SrcT": tf.float32, "DstT": dtype}
            found = graph.add("Cast", [found], name=f"{node.name}/Cast", attrs=cast).output()
        replace_output(model, node.name, found, dtype, f"table '{table.name}' is a sum of rows of a code")
    del model.sparse_tables[handle]

# SPDX-License-Identifier: Apache-2.0
"""Decide whether dense layers may compute in bf16: send the same requests to both precisions and compare the scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from graph_tools.graph import Node, attribute, op_def
from graph_tools.graph.op_library import is_ours, library_info, load_library
from graph_tools.model import Model
from graph_tools.report.precision import Certificate, Loss, Precision
from graph_tools.store import TableFile
from graph_tools.verbs.cpu import this_cpu
from graph_tools.verification import OutputComparison, VerifyReport
from graph_tools.verification.compare import FAR
from graph_tools.writer import write_graph

#: Largest permitted loss of AUC, or of rank correlation with the scores of fp32.
LIMIT = 1e-3
_ATTRIBUTE = "precision"

Tables = dict[str, TableFile]
Compare = Callable[[Path, Path], VerifyReport]


def nodes_with_precision(model: Model) -> list[Node]:
    """Return the ops that have a precision attribute."""
    return [node for node in model.graph if is_ours(node.op) and _has_precision(model, node)]


def set_precision(model: Model, value: str) -> None:
    """Set the precision of every such op: `fp32`, `bf16`, or `auto`, for which the library decides."""
    for node in nodes_with_precision(model):
        model.graph.set_attr(node, _ATTRIBUTE, value)


def decide(model: Model, folder: Path, tables: Tables, requested: str, compare: Compare | None) -> Precision:
    """Decide on the precision of an artifact, and write it into its graph.

    Parameters
    ----------
    model : Model
        The model as it was written; it computes in fp32.
    folder : Path
        Folder of the artifact.
    tables : dict of str to TableFile
        Its table files, by node.
    requested : str
        `fp32`, `bf16` or `auto`.
    compare : callable or None
        Verifies one SavedModel against another; None: do not measure.
    """
    found = _decide(model, folder, tables, requested, compare)
    set_precision(model, found.attribute)
    write_graph(model, folder, tables)
    return found


def _decide(model: Model, folder: Path, tables: Tables, requested: str, compare: Compare | None) -> Precision:
    if not nodes_with_precision(model):
        return Precision(requested, "fp32", False, "no op of the graph has another precision")
    if requested == "fp32":
        return Precision(requested, "fp32", False, "asked for with --precision fp32")
    forced = Precision(requested, "bf16", True, "asked for with --precision bf16")
    if compare is None:
        return forced if requested == "bf16" else Precision(requested, "fp32", False, "not measured: --no-verify")
    measured = _measure(model, folder, tables, compare)
    losses = [_loss(output) for output in measured.outputs]
    problems = _problems(measured, losses)
    certificate = _certificate(measured, losses)
    if requested == "bf16":
        return replace(forced, certificate=certificate, losses=losses)
    if problems:
        return Precision(requested, "fp32", False, problems[0], certificate, losses)
    return Precision(requested, "bf16", False, f"every output loses at most {LIMIT:g}", certificate, losses)


def _measure(model: Model, folder: Path, tables: Tables, compare: Compare) -> VerifyReport:
    """Compare the artifact with a copy that computes in bf16 and has the same variables and tables."""
    with tempfile.TemporaryDirectory(prefix="graph-tools-bf16-") as place:
        copy = Path(place) / folder.name
        copy.mkdir()
        for path in folder.iterdir():
            if path.name != "saved_model.pb":
                (copy / path.name).symlink_to(path.absolute())
        set_precision(model, "bf16")
        write_graph(model, copy, tables)
        return compare(folder, copy)


def _has_precision(model: Model, node: Node) -> bool:
    described = op_def(node.op, model.graph.op_defs)
    known = described is not None and any(attr.name == _ATTRIBUTE and attr.type == "string" for attr in described.attr)
    return known or isinstance(attribute(node, _ATTRIBUTE), bytes)


def _loss(output: OutputComparison) -> Loss:
    ranked = None if output.rank_correlation is None else max(0.0, 1.0 - output.rank_correlation)
    area = None if output.auc_a is None or output.auc_b is None else output.auc_a - output.auc_b
    return Loss(output.signature, output.name, output.max_abs_difference, ranked, area, _problem(output, ranked, area))


def _problem(output: OutputComparison, ranked: float | None, area: float | None) -> str | None:
    place = f"signature '{output.signature}', output '{output.name}'"
    if output.equal:
        return None
    if not output.only_scores_differ:
        return f"{place}: outputs other than scores differ in bf16"
    lost, measure = (area, "AUC") if area is not None else (ranked, "rank correlation")
    if lost is None:
        return f"{place}: differs by {output.max_abs_difference:.2g} in bf16, and its values have no order to compare"
    if lost > LIMIT:
        return f"{place}: loses {lost:.2g} of {measure} in bf16, expected at most {LIMIT:g}"
    if output.far:
        most = f"{FAR.absolute:g} + {FAR.relative:g} x |score|"
        return f"{place}: differs by {output.max_abs_difference:.2g} in bf16, expected at most {most}"
    return None


def _problems(measured: VerifyReport, losses: list[Loss]) -> list[str]:
    """Return the reasons against bf16, one sentence each."""
    others = replace(measured, outputs=[]).differences()
    weak = [f"the proof is too weak to permit bf16: {reason}" for reason in measured.weak]
    return others + [loss.problem for loss in losses if loss.problem is not None] + weak


def _certificate(measured: VerifyReport, losses: list[Loss]) -> Certificate:
    import tensorflow as tf

    cpu = this_cpu()
    ranked = [loss.rank_correlation_loss for loss in losses if loss.rank_correlation_loss is not None]
    areas = [loss.auc_loss for loss in losses if loss.auc_loss is not None]
    return Certificate(
        max_difference=max((loss.max_difference for loss in losses), default=0.0),
        rank_correlation_loss=max(ranked, default=None),
        auc_loss=max(areas, default=None),
        limit=LIMIT,
        requests=sum(signature.answered for signature in measured.signatures),
        rows=measured.rows,
        cpu=cpu.model,
        cpu_features=cpu.features,
        arithmetic=cpu.arithmetic,
        library_version=library_info(load_library()).version,
        tensorflow_version=tf.__version__,
    )

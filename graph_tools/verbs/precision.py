# SPDX-License-Identifier: Apache-2.0
"""Decide whether dense layers may compute in bf16 or int8: compare the scores of the same requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from graph_tools.graph.op_library import library_info, load_library
from graph_tools.model import Model
from graph_tools.options import FuseOptions
from graph_tools.report.precision import Int8, KeptLayer, Precision, WithoutInt8
from graph_tools.verbs.kept_layers import LayerSearch
from graph_tools.verbs.precision_trial import Compare, Measured, Tables, Trial
from graph_tools.verbs.tower_precision import LayerPlace, int8_layers, nodes_with_precision, set_precision
from graph_tools.writer import write_graph

#: Largest loss of AUC for which bf16 is permitted, or of rank correlation with the scores of fp32.
LIMIT = 1e-3


def decide(model: Model, folder: Path, tables: Tables, options: FuseOptions, compare: Compare | None) -> Precision:
    """Decide on the precision of an artifact, and write it into its graph.

    Parameters
    ----------
    model : Model
        The model as it was written; it computes in fp32.
    folder : Path
        Folder of the artifact.
    tables : dict of str to TableFile
        Its table files, by node.
    options : FuseOptions
    compare : callable or None
        Verifies one SavedModel against another; None: do not measure.
    """
    found = _Decision(options, None if compare is None else Trial(model, folder, tables, compare)).about(model)
    kept = {} if found.int8 is None else {_place(layer): layer.precision for layer in found.int8.kept}
    set_precision(model, found.attribute, kept)
    write_graph(model, folder, tables)
    return found


def _place(layer: KeptLayer) -> LayerPlace:
    return LayerPlace(layer.node, layer.layer, layer.weights)


@dataclass
class _Decision:
    """How the precision of an artifact is decided.

    Attributes
    ----------
    trial : Trial or None
        None: do not measure.
    """

    options: FuseOptions
    trial: Trial | None

    def about(self, model: Model) -> Precision:
        requested = self.options.precision
        if not nodes_with_precision(model):
            return Precision(requested, "fp32", False, "no op of the graph has another precision")
        if requested == "fp32":
            return Precision(requested, "fp32", False, "asked for with --precision fp32")
        measured = None if self.trial is None else self.trial.measure("bf16", LIMIT)
        found = self._about_bf16(measured)
        if requested == "bf16":
            return replace(found, permitted="bf16", forced=True, reason="asked for with --precision bf16")
        towers = int8_layers(model)
        int8 = self._about_int8(towers, found.permitted, measured) if towers else None
        if requested == "int8":
            reason = "asked for with --precision int8"
            if int8 is None:
                int8 = Int8(True, f"{reason}; no layer can compute in it")
            elif int8.certificate is None:
                int8 = replace(int8, permitted=True, reason=f"{reason}; {int8.reason}")
            else:
                int8 = replace(int8, permitted=True, reason=reason)
        found.int8 = int8
        if int8 is None or not int8.permitted:
            return found
        without = WithoutInt8(found.permitted, found.reason)
        forced = requested == "int8"
        return replace(found, permitted="int8", forced=forced, reason=int8.reason, without_int8=without)

    def _about_bf16(self, measured: Measured | None) -> Precision:
        requested = self.options.precision
        if measured is None:
            return Precision(requested, "fp32", False, "not measured: --no-verify")
        permitted, reason = "bf16", f"every output loses at most {LIMIT:g}"
        if measured.problems:
            permitted, reason = "fp32", measured.problems[0]
        return Precision(requested, permitted, False, reason, measured.certificate(), losses=measured.losses)

    def _about_int8(self, towers: list[list[LayerPlace]], wider: str, bf16: Measured | None) -> Int8:
        if self.trial is None or bf16 is None:
            return Int8(False, "not measured: --no-verify")
        if "int8" not in library_info(load_library()).precisions:
            return Int8(False, "not measured: libprocessor has no int8 arithmetic on this CPU")
        limit, recorded = self.options.max_auc_loss, any(signature.recorded for signature in bf16.report.signatures)
        if self.options.precision == "int8":
            measured = self.trial.measure("int8", limit, recorded_only=recorded)
            return Int8(True, "", measured.certificate(), [], measured.losses, 1)
        if not recorded:
            return Int8(False, "not measured: no recorded requests, expected some (--requests)")
        return LayerSearch(self.trial, towers, wider, limit).decide()

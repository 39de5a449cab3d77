# SPDX-License-Identifier: Apache-2.0
"""Define the report of `fuse` and `optimize`: that of `cut`, with fused ops, table files and precision."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.graph import Graph, Node, attribute
from graph_tools.graph.op_library import is_ours, ops_version, our_ops
from graph_tools.json_data import JsonSchema, Positive
from graph_tools.model import Model
from graph_tools.options import FuseOptions
from graph_tools.report.cut import CutReport
from graph_tools.report.live import Live
from graph_tools.report.precision import Precision
from graph_tools.report.table_files import PlacedTableFile
from graph_tools.rewriting.protocol import PassResult
from graph_tools.verification.timing import Timing

OurOp = Annotated[str, JsonSchema(type="string", pattern="^Rec")]


@dataclass
class Site:
    """A fused op and a description of it."""

    node: str
    op: OurOp
    what: str


@dataclass
class FusedPass(PassResult):
    """Result of a fusing pass.

    Attributes
    ----------
    sites : list of Site
        The fused ops that the pass added.
    """

    sites: list[Site] = field(default_factory=list)


@dataclass
class Requirements:
    """Requirements on a host that loads an artifact.

    Attributes
    ----------
    recprocessor_ops : int
        Version of docs/fused_ops.md.
    """

    recprocessor_ops: Positive


@dataclass
class FuseReport(CutReport):
    """The report of `graph-tools fuse` or `optimize`.

    Attributes
    ----------
    passes : list of PassResult
        Passes of `cut`, which run before those of `fused`, and the passes that tidy the graph after these.
    fused : list of FusedPass
        Result of each fusing pass, in order.
    fuse_options : FuseOptions
        The options of the run.
    user_inputs : list of str
        Inputs that describe the user, if rows are items: they may have one row, or one row per item.
    precision : Precision or None
        None: nothing was written.
    library : str
        The library that the result was verified with.
    timing : Timing or None
        Where the source spends its time; None: not requested (`--explain`).
    live : Live or None
        What the model follows; None: it is not live, or nothing was written.
    """

    SCHEMA = "fuse_report/1"

    fused: list[FusedPass] = field(default_factory=list)
    fuse_options: FuseOptions = field(default_factory=FuseOptions)
    user_inputs: list[str] = field(default_factory=list)
    table_files: list[PlacedTableFile] = field(default_factory=list)
    precision: Precision | None = None
    library: str = ""
    requires: Requirements = field(default_factory=lambda: Requirements(1))
    timing: Timing | None = None
    live: Live | None = None

    def note_ops(self, model: Model) -> None:
        """Record which version of the ops a model needs."""
        int8 = self.precision is not None and self.precision.permitted == "int8"
        self.requires = Requirements(ops_version(our_ops(model.graph), int8))


def our_nodes(graph: Graph) -> dict[str, Node]:
    """Return the nodes that are ops of libprocessor, by name."""
    return {node.name: node for node in graph if is_ours(node.op)}


def describe_sites(model: Model, before: set[tuple[str, str]]) -> list[Site]:
    """Return the fused ops of a graph that are not among the earlier ones (name, op)."""
    return [
        Site(name, node.op, describe_node(node))
        for name, node in our_nodes(model.graph).items()
        if (name, node.op) not in before and not node.op.endswith("EmbeddingTable")
    ]


def describe_node(node: Node) -> str:
    """Return a description of a fused op in words."""
    plan = json.loads(attribute(node, "plan")) if "plan" in node.attrs else {}
    texts = []
    if "layers" in plan:
        texts.append(_count(len(plan["layers"]), "layer"))
    if "columns" in plan:
        kinds = [column["kind"] for column in plan["columns"]]
        texts += [_count(kinds.count("lookup"), "lookup")] if "lookup" in kinds else []
        texts += [_count(kinds.count("copy"), "copied feature")] if "copy" in kinds else []
        texts += [_count(kinds.count("linear"), "linear feature")] if "linear" in kinds else []
        widths = [str(output["width"]) for output in plan["outputs"]]
        texts.append(f"columns: {', '.join(widths)}")
    return ", ".join([*texts, _count(len(node.inputs), "input")])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

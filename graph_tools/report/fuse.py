# SPDX-License-Identifier: Apache-2.0
"""What `fuse` and `optimize` did: the report of a cut, and what became fused ops, table files and precision."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from graph_tools.graph import Graph, Node, attribute
from graph_tools.graph.op_library import is_ours, ops_version, our_ops
from graph_tools.model import Model
from graph_tools.report.cut import CutReport
from graph_tools.report.table_files import TableRecord
from graph_tools.rewriting.protocol import PassResult
from graph_tools.verbs.precision import Precision
from graph_tools.verification.timing import Timing

SCHEMA = "fuse_report/1"


@dataclass
class Site:
    """A fused op and what it does.

    Attributes
    ----------
    node, op : str
        As the artefact has them.
    what : str
    """

    node: str
    op: str
    what: str


@dataclass
class FusedPass(PassResult):
    """What a fusing pass did.

    Attributes
    ----------
    sites : list of Site
        The ops that are there since.
    """

    sites: list[Site] = field(default_factory=list)


@dataclass
class FuseReport(CutReport):
    """The report of one fusion; `to_json` is valid under `docs/schemas/fuse_report.schema.json`.

    Attributes
    ----------
    passes : list of PassResult
        Those of `cut`, which come before.
    fused : list of FusedPass
    fuse_options : dict
    user_inputs : list of str
        Inputs that may come with one row for many items: those asked for, if the model was split.
    table_files : list of TableRecord
    precision : Precision or None
        None where verification failed.
    library : str
        What the ops were run with.
    ops_version : int
        Of the ops that the model has.
    timing : Timing or None
        Where the time of the source goes, if that was asked for.
    """

    fused: list[FusedPass] = field(default_factory=list)
    fuse_options: dict[str, Any] = field(default_factory=dict)
    user_inputs: list[str] = field(default_factory=list)
    table_files: list[TableRecord] = field(default_factory=list)
    precision: Precision | None = None
    library: str = ""
    ops_version: int = 1
    timing: Timing | None = None

    def note_ops(self, model: Model) -> None:
        """Note which version of the ops a model needs."""
        self.ops_version = ops_version(our_ops(model.graph))

    def to_json(self) -> dict[str, Any]:
        data = super().to_json() | {"schema": SCHEMA, "requires": self.requires}
        del data["ops_version"]
        return data

    @property
    def requires(self) -> dict[str, int]:
        """What a host must have to load the artefact."""
        return {"recprocessor_ops": self.ops_version}


def our_nodes(graph: Graph) -> dict[str, Node]:
    """Index the nodes that are ops of libprocessor by name."""
    return {node.name: node for node in graph if is_ours(node.op)}


def describe_sites(model: Model, before: set[tuple[str, str]]) -> list[Site]:
    """List the fused ops of a graph that are not among those (name, op) that were there before."""
    return [
        Site(name, node.op, describe_node(node))
        for name, node in our_nodes(model.graph).items()
        if (name, node.op) not in before and not node.op.endswith("EmbeddingTable")
    ]


def describe_node(node: Node) -> str:
    """Say in words what a fused op does."""
    plan = json.loads(attribute(node, "plan")) if "plan" in node.attrs else {}
    texts = []
    if "layers" in plan:
        texts.append(_count(len(plan["layers"]), "layer"))
    if "columns" in plan:
        kinds = [one["kind"] for one in plan["columns"]]
        texts += [_count(kinds.count("lookup"), "lookup")] if "lookup" in kinds else []
        texts += [_count(kinds.count("copy"), "copied feature")] if "copy" in kinds else []
        texts += [_count(kinds.count("linear"), "linear feature")] if "linear" in kinds else []
        widths = [str(one["width"]) for one in plan["outputs"]]
        texts.append(f"columns: {', '.join(widths)}")
    return ", ".join([*texts, _count(len(node.inputs), "input")])


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

# SPDX-License-Identifier: Apache-2.0
"""Which of a system's nodes are served, and how an output of theirs is given another source."""

from __future__ import annotations

from dataclasses import replace

from graph_tools.graph import Node, Output
from graph_tools.model import Model


def served(model: Model, ops: set[str]) -> list[Node]:
    """List the nodes of some ops that an output of a signature needs, each after those it uses."""
    needed = model.graph.ancestors(model.outputs())
    return [node for node in model.graph.ordered() if node.op in ops and node.name in needed]


def replace_output(model: Model, old: Output, new: Output) -> None:
    """Let every user of an output use another, signatures included."""
    model.graph.replace(old, new)
    for signature in model.signatures.values():
        for key, endpoint in signature.outputs.items():
            if endpoint.tensor == old:
                signature.outputs[key] = replace(endpoint, tensor=new)

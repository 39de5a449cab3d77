# SPDX-License-Identifier: Apache-2.0
"""The graph view that readers, passes and writers share."""

from graph_tools.graph.attributes import attr_value, attribute, const_array
from graph_tools.graph.graph import Graph
from graph_tools.graph.inline import inline_calls
from graph_tools.graph.node import Node, Output
from graph_tools.graph.op_defs import is_native, op_def, output_types, writes

__all__ = [
    "Graph",
    "Node",
    "Output",
    "attr_value",
    "attribute",
    "const_array",
    "inline_calls",
    "is_native",
    "op_def",
    "output_types",
    "writes",
]

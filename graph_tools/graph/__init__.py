# SPDX-License-Identifier: Apache-2.0
"""The graph view that readers, passes and writers share."""

from graph_tools.graph.attributes import attr_value, attribute, const_array
from graph_tools.graph.constants import constant, constant_list, is_constant
from graph_tools.graph.dtypes import dtype_of
from graph_tools.graph.effects import CONTROL_FLOW, functions_of, has_effect
from graph_tools.graph.graph import Graph
from graph_tools.graph.inline import inline_calls
from graph_tools.graph.node import Node, Output
from graph_tools.graph.op_defs import input_types, is_native, op_def, output_types, with_defaults, writes
from graph_tools.graph.slices import first_column
from graph_tools.graph.tracing import PASS_THROUGH, operand, skip, source

__all__ = [
    "CONTROL_FLOW",
    "PASS_THROUGH",
    "Graph",
    "Node",
    "Output",
    "attr_value",
    "attribute",
    "const_array",
    "constant",
    "constant_list",
    "dtype_of",
    "first_column",
    "functions_of",
    "has_effect",
    "inline_calls",
    "input_types",
    "is_constant",
    "is_native",
    "op_def",
    "operand",
    "output_types",
    "skip",
    "source",
    "with_defaults",
    "writes",
]

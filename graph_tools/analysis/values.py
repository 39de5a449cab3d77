# SPDX-License-Identifier: Apache-2.0
"""Values that are known before any request: constants and variables that nothing writes."""

from __future__ import annotations

from typing import Any

from graph_tools.graph import Output, constant, skip
from graph_tools.live import LiveTensor, read_weight
from graph_tools.model import Model
from graph_tools.tensors import Array, byte_size

#: Passes examine values up to this size.
SMALL_BYTES = 1 << 16


class Values:
    """Reads known values; it is a snapshot of the written variables, so each run of a pass makes a new one."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.written = model.written_variables()

    def constant(self, output: Output) -> Array | None:
        """Return the elements of a constant that waits for no other node, so that a pass may remove it, or None."""
        return constant(self.model.graph, output, waits=False)

    def value(self, output: Output, limit: int = SMALL_BYTES) -> Array | None:
        """Return the elements of such a constant, or of a variable up to `limit` bytes that never changes, or None."""
        handle = self.handle(output)
        if handle is None:
            return self.constant(output)
        source = self.model.variables[handle]
        return source.read() if byte_size(source) <= limit and not isinstance(source, LiveTensor) else None

    def weight(self, output: Output, limit: int = SMALL_BYTES) -> Array | None:
        """Return what `value` does, and the value of a variable that only a trainer changes as a traced array.

        Only passes that give the result to `add_weight` may use it.
        """
        handle = self.handle(output)
        source = None if handle is None else self.model.variables[handle]
        if isinstance(source, LiveTensor):
            return read_weight(source) if byte_size(source) <= limit else None
        return self.value(output, limit)

    def handle(self, output: Output) -> str | None:
        """Return the handle of the variable whose value an output is, if it is restored and nothing writes it."""
        node = self.model.graph.source(skip(self.model.graph, output))
        if node.op != "ReadVariableOp" or node.controls:
            return None
        handle = node.inputs[0].node
        readable = handle in self.model.variables and handle not in self.written
        return handle if readable and self.model.graph[handle].op == "VarHandleOp" else None

    def is_stored(self, output: Output) -> bool:
        """Return whether an output is a Const or a variable that nothing writes, of any size, and not computed."""
        return self.handle(output) is not None or self.model.graph.source(skip(self.model.graph, output)).op == "Const"

    def scalar(self, output: Output) -> Any | None:
        """Return the element of a constant with exactly one element and any rank, or None."""
        value = self.constant(output)
        return None if value is None or value.size != 1 else value.reshape(-1)[0]


def is_float(dtype: Any) -> bool:
    """Return whether folding arithmetic into weights of a dtype keeps scores within the tolerance."""
    import tensorflow as tf

    return dtype in (tf.float32, tf.float64)

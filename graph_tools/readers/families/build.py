# SPDX-License-Identifier: Apache-2.0
"""Add native nodes with a common scope, in the few forms that the families need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output


class Build:
    """Adds nodes named `<scope>/<op>`; every method returns the output that callers need."""

    def __init__(self, graph: Graph, scope: str) -> None:
        import tensorflow as tf

        self.graph, self.scope, self.tf = graph, scope, tf

    def add(self, op: str, *inputs: Output, port: int = 0, **attrs: Any) -> Output:
        return self.graph.add(op, inputs, name=f"{self.scope}/{op}", attrs=attrs).output(port)

    def const(self, value: Any, dtype: Any = np.int32) -> Output:
        return self.graph.add_const(np.array(value, dtype), f"{self.scope}/Const")

    def flat(self, value: Output, dtype: Any) -> Output:
        """Reshape to one axis."""
        return self.add("Reshape", value, self.const([-1]), T=dtype, Tshape=self.tf.int32)

    def concat(self, values: Sequence[Output], dtype: Any) -> Output:
        """Concatenate along the first axis."""
        if len(values) == 1:
            return values[0]
        return self.add("ConcatV2", *values, self.const(0), N=len(values), T=dtype, Tidx=self.tf.int32)

    def split(self, value: Output, sizes: Output, count: int, dtype: Any, size_dtype: Any) -> list[Output]:
        """Split along the first axis into pieces of the given sizes."""
        first = self.add("SplitV", value, sizes, self.const(0), num_split=count, T=dtype, Tlen=size_dtype)
        return [Output(first.node, port) for port in range(count)]

    def slice(self, value: Output, begin: Output, size: Output, dtype: Any, index_dtype: Any) -> Output:
        return self.add("Slice", value, begin, size, T=dtype, Index=index_dtype)

    def gather(self, rows: Output, places: Output, dtype: Any) -> Output:
        """Gather rows along the first axis; places are int64."""
        attrs = {"Tparams": dtype, "Tindices": self.tf.int64, "Taxis": self.tf.int32, "batch_dims": 0}
        return self.add("GatherV2", rows, places, self.const(0), **attrs)

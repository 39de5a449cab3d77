# SPDX-License-Identifier: Apache-2.0
"""A graph of TensorFlow that computes weights from the variables of the source model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import Graph, Node, Output
from graph_tools.tensors import Array, TensorSource, byte_size

_SOURCE = "source"
#: A GraphDef has less than 2 GiB.
_MOST_BYTES = 1 << 30


class Formulas:
    """The formulas of a model, as outputs of one graph.

    A formula is an output of `graph`; a source variable is a Placeholder named `source/<name>`.

    Attributes
    ----------
    graph : Graph
    followed : list of str
        The names of all variables and tables of the source that may change.
    sources : dict of str to TensorSource
        The variables of the source model that have a placeholder, by name.
    of_plans : dict of str to list of Output or None
        The formulas of the numbers in the plan of a `RecEmbeddingGroup`, by node, in the order of its attribute
        `formulas`; None for numbers that never change.
    """

    def __init__(self, followed: Iterable[str] = ()) -> None:
        self.graph = Graph()
        self.followed = list(followed)
        self.sources: dict[str, TensorSource] = {}
        self.of_plans: dict[str, list[Output | None]] = {}

    def source(self, name: str, tensor: TensorSource) -> Output:
        """Return the placeholder of a source variable."""
        if name not in self.sources:
            self.sources[name] = tensor
            attrs = {"dtype": tensor.dtype, "shape": tensor.shape}
            self.graph.add("Placeholder", name=f"{_SOURCE}/{name}", attrs=attrs)
        return Output(f"{_SOURCE}/{name}")

    def add(self, op: str, inputs: list[Output], **attrs: Any) -> Output:
        """Add an operation and return its first output."""
        return self.graph.add(op, inputs, name=op, attrs=attrs).output()

    def constant(self, value: Any) -> Output:
        """Return a constant."""
        return self.graph.add_const(np.asarray(value), "Const")

    def copy(self, graph: Graph, output: Output, copied: dict[str, Output]) -> Output:
        """Copy the nodes that compute an output of another graph, and return the copy of the output.

        `copied` contains the first output of the copies of nodes that are there already, and receives the new ones.
        """
        waiting = [output.node]
        while waiting:
            node = graph[waiting[-1]]
            missing = [source.node for source in node.inputs if source.node not in copied]
            if node.name not in copied and missing:
                waiting += missing
                continue
            waiting.pop()
            if node.name not in copied:
                copied[node.name] = self._copy_node(node, copied)
        return Output(copied[output.node].node, output.port)

    def _copy_node(self, node: Node, copied: Mapping[str, Output]) -> Output:
        made = self.graph.add("NoOp", name=node.op)
        inputs = [
            copied[source.node] if source.port == 0 else Output(copied[source.node].node, source.port)
            for source in node.inputs
        ]
        made.op, made.attrs = node.op, dict(node.attrs)
        self.graph.set_inputs(made, inputs, [])
        return made.output()

    def sources_of(self, outputs: Iterable[Output]) -> list[str]:
        """Return the names of the variables that formulas need, in ascending order."""
        needed = self.graph.ancestors({output.node for output in outputs})
        return sorted(name for name in self.sources if f"{_SOURCE}/{name}" in needed)

    def to_graph_def(self, outputs: list[Output]) -> Any:
        """Return a GraphDef in which node `formula/<n>` computes formula n from nodes `source/<m>`.

        The variables are numbered as `sources_of` lists them; each has its value in the source model as default.

        Raises
        ------
        ConversionError
            The variables are too large for a GraphDef.
        """
        names = self.sources_of(outputs)
        sizes = {name: byte_size(self.sources[name]) for name in names}
        if sum(sizes.values()) > _MOST_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            raise ConversionError(
                f"variables that weights are computed from: {sum(sizes.values()):,} bytes, of which '{largest}' has "
                f"{sizes[largest]:,}, expected at most {_MOST_BYTES:,}"
            )
        written = Formulas()
        copied: dict[str, Output] = {}
        for number, name in enumerate(names):
            value = self.sources[name].read()
            attrs = {"dtype": value.dtype, "shape": value.shape}
            inputs = [written.constant(value)]
            made = written.graph.add("PlaceholderWithDefault", inputs, name=f"{_SOURCE}/{number}", attrs=attrs)
            copied[f"{_SOURCE}/{name}"] = made.output()
        for number, output in enumerate(outputs):
            result = written.copy(self.graph, output, copied)
            written.graph.add("Identity", [result], name=f"formula/{number}", attrs={"T": np.float32})
        return written.graph.to_graph_def()

    def evaluate(self, outputs: list[Output], values: Mapping[str, Array] | None = None) -> list[Array]:
        """Compute formulas with TensorFlow, on one thread.

        Parameters
        ----------
        outputs : list of Output
        values : mapping of str to ndarray, optional
            Values of source variables; those that are missing have the values of the source model.
        """
        import tensorflow as tf

        if not outputs:
            return []
        given = values or {}
        names = self.sources_of(outputs)
        feeds = {f"{_SOURCE}/{name}:0": given[name] if name in given else self.sources[name].read() for name in names}
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Graph().as_default() as imported:
            tf.graph_util.import_graph_def(self.graph.to_graph_def(), name="")
            with tf.compat.v1.Session(graph=imported, config=config) as session:
                return [np.asarray(value) for value in session.run([str(output) for output in outputs], feeds)]


def generic_value(name: str, value: Array) -> Array:
    """Return a value near that of a variable without zeros, ones or equal elements that are there only by chance.

    What a trainer may change must not decide how a graph is rewritten. Decisions are therefore made on this value: if
    an equation holds for it, then it holds for almost all values of the variable. Elements keep their sign, and zeros
    become positive, so that roots of variances stay defined.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    random = np.random.default_rng(seed)
    away = random.uniform(0.01, 0.1, value.shape) * (np.abs(value) + 0.1)
    moved: Array = (value + np.where(value < 0, -away, away)).astype(value.dtype)
    return moved

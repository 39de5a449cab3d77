# SPDX-License-Identifier: Apache-2.0
"""Compute a recurrent layer in one node instead of a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.live import contiguous, read_weight
from graph_tools.model import Model
from graph_tools.recognition.recurrent_cells import Bias
from graph_tools.recognition.recurrent_loops import TURNED, Layer, Loop, read_layer, read_loop, sequence_of
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.replace import replace_output
from graph_tools.tensors import Array

_MOST_BIAS_BYTES = 1 << 24


@dataclass(frozen=True)
class _Results:
    """The outputs to replace, which are computed from the results of a loop.

    Attributes
    ----------
    last : list of Output
        The outputs that are the state after the last position.
    every : list of Output
        The outputs that are the state after each position, [rows, positions, units].
    turned : Output or None
        The same as [positions, rows, units], if other nodes use it.
    """

    last: list[Output]
    every: list[Output]
    turned: Output | None


@dataclass(frozen=True)
class _Fusion:
    """The inputs and attributes of the node that replaces a loop."""

    inputs: list[Output]
    biases: list[Array]
    attrs: dict[str, Any]
    results: _Results


class FuseRecurrentLayers(Pass):
    """Replace the loop of a GRU or an LSTM by a node.

    Before: `TensorListStack(While(..., TensorListFromTensor(Transpose(x)), kernel, recurrent, bias))`, as Keras 2 and 3
    export a layer, with or without mask, for the last state or for the state of each position, forwards or backwards.
    After: `RecRecurrentLayer(x, mask, kernel, recurrent, biases)`.
    """

    name = "fuse_recurrent_layers"

    def process(self, model: Model, result: PassResult) -> None:
        while True:
            # A layer that uses the states of another one is recognized once that one is a node.
            flat, before = Flat(model), result.applied
            result.refused = []
            for node in flat.graph.of("While", "StatelessWhile"):
                self.handle(node.name, _match(flat, node), partial(_fuse, flat, node), result)
            if result.applied == before or not result.refused:
                break

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the loops that a node could compute."""
        flat = Flat(model)
        for node in model.graph.of("While", "StatelessWhile"):
            if node.name not in self.left_alone and isinstance(_match(flat, node), Found):
                yield node.name


def _match(flat: Flat, node: Node) -> Outcome[_Fusion]:
    def match_layer(loop: Loop) -> Outcome[_Fusion]:
        layer = read_layer(loop).in_context(f"'{node.name}' is a loop, but neither a GRU nor an LSTM")
        return layer.then(
            lambda found: _fusion(flat, loop, found).in_context(f"'{node.name}' computes a layer '{found.cell.kind}'")
        )

    return read_loop(flat, node).in_context(f"'{node.name}' is a loop, but not a recurrent layer").then(match_layer)


def _fuse(flat: Flat, loop: Node, found: _Fusion) -> None:
    model, graph, results = flat.model, flat.graph, found.results
    sequences = bool(results.every or results.turned)
    inputs = [*(_weight(flat, source) for source in found.inputs)]
    inputs += [add_weight(model, f"{loop.name}/bias_{i}", bias) for i, bias in enumerate(found.biases)]
    attrs = {**found.attrs, "sequences": sequences}
    states = graph.add("RecRecurrentLayer", inputs, name=f"{loop.name}/RecRecurrentLayer", attrs=attrs).output()
    why = f"computed by '{states.node}'"
    replaced = [(output, states) for output in results.every]
    if results.last:
        replaced += [(output, _last_of(flat, states) if sequences else states) for output in results.last]
    if results.turned is not None:
        order = graph.add_const(np.array(TURNED, np.int32), f"{states.node}/order")
        attrs = {"T": np.float32, "Tperm": np.int32}
        turned = graph.add("Transpose", [states, order], name=f"{states.node}/turned", attrs=attrs)
        replaced.append((results.turned, turned.output()))
    for old, new in replaced:
        replace_output(model, old, new, np.float32, why)


def _fusion(flat: Flat, loop: Loop, layer: Layer) -> Outcome[_Fusion]:
    node, cell = loop.node, layer.cell
    for i, term in enumerate(loop.returned):
        is_state = term[0] in {"sum", "product", "select"} and i not in _counters(loop)
        if is_state and flat.scalar(node.inputs[i]) != 0:
            return Refused(f"its first state '{node.inputs[i].node}' is not zero")
    x = sequence_of(flat, node.inputs[cell.x[1][1]])
    mask = None if layer.mask is None else sequence_of(flat, node.inputs[layer.mask])
    if x is None or not flat.is_float(x[0]):
        return Refused(f"'{node.inputs[cell.x[1][1]].node}' is not a sequence of float32")
    if layer.mask is not None and (mask is None or mask[1] != x[1] or flat.known(mask[0])[2:] != [1]):
        return Refused(f"'{node.inputs[layer.mask].node}' is not a mask with one element for each position")
    kernels = [node.inputs[index] for index in (cell.kernel, cell.recurrent)]
    biases = [_sum_of_biases(flat, node, parts) for parts in cell.biases if parts]
    if not all(_is_weight(flat, kernel) for kernel in kernels) or any(bias is None for bias in biases):
        return Refused("its weights are not known before serving")
    if cell.biases[1] and not cell.biases[0]:
        return Refused("its products with the state alone have a bias")
    attrs: dict[str, Any] = {
        "cell": cell.kind, "num_masks": int(mask is not None), "Tmask": np.bool_, "num_biases": len(biases),
        "backwards": x[1],
    }  # fmt: skip
    inputs = [x[0], *([] if mask is None else [mask[0]]), *kernels]
    known = [bias for bias in biases if bias is not None]
    return _find_results(flat, loop, layer).then(lambda results: Found(_Fusion(inputs, known, attrs, results)))


def _counters(loop: Loop) -> set[int]:
    return {i for i, term in enumerate(loop.returned) if term[0] == "sum" and ("const", (1,), ()) in term[1]}


def _find_results(flat: Flat, loop: Loop, layer: Layer) -> Outcome[_Results]:
    """Find the outputs that are computed from a loop's results; refuse if the node cannot replace one of them."""
    graph, node = flat.graph, loop.node
    used = {source.port for user in graph.users(node.name) for source in user.inputs if source.node == node.name}
    if node.name in flat.roots or used - {layer.state, layer.results}:
        return Refused(f"other outputs of '{node.name}' are used than states and results")
    last, every, turned = [node.output(layer.state)] if layer.state in used else [], [], None
    appended = layer.results is not None and loop.returned[layer.results][2] == ("arg", loop.time)
    for stack in _users(flat, None if layer.results is None else node.output(layer.results)):
        if stack.op != "TensorListStack" or turned is not None:
            return Refused(f"'{stack.name}' does not read the results as one tensor")
        users = _users(flat, stack.output())
        last += [user.output() for user in users if _is_last(flat, user)]
        every += [user.output() for user in users if _is_turned(flat, user)]
        if len(last) + len(every) < len(users) + (layer.state in used) or stack.name in flat.roots:
            turned = stack.output()
    if not appended and (every or turned):
        return Refused(f"the results of '{node.name}' are read as if there were one for each position")
    if not last and not every and turned is None:
        return Refused("nothing uses its results")
    return Found(_Results(last, every, turned))


def _is_turned(flat: Flat, node: Node) -> bool:
    return node.op == "Transpose" and flat.shapes.numbers(node.inputs[1]) == TURNED


def _users(flat: Flat, output: Output | None) -> list[Node]:
    """Return the nodes that use an output, directly or through identities."""
    if output is None:
        return []
    found = []
    for user in flat.graph.users(output.node):
        if output in user.inputs:
            through = user.op == "Identity" and user.name not in flat.roots
            found += _users(flat, user.output()) if through else [user]
    return found


def _is_last(flat: Flat, node: Node) -> bool:
    """Return whether a node is `x[-1]`."""
    if node.op != "StridedSlice" or attribute(node, "shrink_axis_mask", 0) != 1 or attribute(node, "new_axis_mask", 0):
        return False
    begin = flat.shapes.numbers(node.inputs[1])
    return not attribute(node, "ellipsis_mask", 0) and begin == [-1] and not attribute(node, "begin_mask", 0) & 1


def _last_of(flat: Flat, states: Output) -> Output:
    """Add `x[:, -1]`."""
    bounds = [
        flat.graph.add_const(np.array(bound, np.int32), f"{states.node}/last") for bound in ([0, -1], [0, 0], [1, 1])
    ]
    attrs = {"T": np.float32, "Index": np.int32, "begin_mask": 1, "end_mask": 3, "shrink_axis_mask": 2}
    return flat.graph.add("StridedSlice", [states, *bounds], name=f"{states.node}/last", attrs=attrs).output()


def _is_weight(flat: Flat, output: Output) -> bool:
    """Return whether an output, or its variable if it is a handle, is a float32 constant."""
    import tensorflow as tf

    node = flat.graph[skip(flat.graph, output).node]
    if node.op != "VarHandleOp":
        return flat.is_constant(output) and flat.is_float(output)
    known = node.name in flat.model.variables and node.name not in flat.values.written
    return bool(known and attribute(node, "dtype") == tf.float32)


def _weight(flat: Flat, output: Output) -> Output:
    """Return a weight; read it from its variable if the loop itself does so."""
    output = skip(flat.graph, output)
    node = flat.graph[output.node]
    if node.op != "VarHandleOp":
        return output
    attrs = {"dtype": attribute(node, "dtype")}
    return flat.graph.add("ReadVariableOp", [output], name=f"{node.name}/Read", attrs=attrs).output()


def _sum_of_biases(flat: Flat, node: Node, parts: tuple[Bias, ...]) -> Array | None:
    """Return the sum of biases, or None if one is not known."""
    total: Array | None = None
    for index, row in parts:
        output = skip(flat.graph, node.inputs[index])
        if not _is_weight(flat, output):
            return None
        variable = flat.model.variables.get(output.node)
        value = flat.values.weight(output, _MOST_BIAS_BYTES) if variable is None else read_weight(variable)
        if value is None:
            return None
        vector = value if row is None else value[row]
        total = vector if total is None else total + vector
    return None if total is None else contiguous(total.reshape(-1))

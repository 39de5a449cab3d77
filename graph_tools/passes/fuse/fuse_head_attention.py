# SPDX-License-Identifier: Apache-2.0
"""Compute attention of several heads in one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, dtype_of, skip
from graph_tools.recognition.heads import Heads, joined_heads, split_heads, untiled
from graph_tools.rewriting.add_nodes import add_reshape
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, reshapable
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused

_PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_COMPARISONS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual")
_ADDS = ("Add", "AddV2", "Sub")

#: Makes a mask of four dimensions; called only if everything else matches.
MakeMask = Callable[[], Output]


@dataclass
class _Scores:
    """The scaling and masking of products before they weight values; masks are made only if everything matches."""

    product: Node
    scale: float = 1.0
    padding: float = 0.0
    masks: dict[str, MakeMask] = field(default_factory=dict)


class FuseHeadAttention(InteractionPass):
    """Replace `softmax(Q Kᵀ · scale, masked) V` of one or several heads, with the nodes that split and join heads.

    Before: `BatchMatMul(Softmax(BatchMatMul(heads(q), heads(k)ᵀ) * scale), heads(v))` between splits, packs or
    transposes, or the two `Einsum` of Keras. Masks are added, select scores, or scale rows afterwards.
    After: `RecHeadAttention(q, k, v, masks)`.

    `fuse_dense_towers` fuses the layers that compute q, k and v, and the normalization after it.
    """

    name = "fuse_head_attention"

    def roots(self, flat: Flat) -> Iterable[Node]:
        return flat.graph.of(*_PRODUCTS, "Einsum")

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        return _match_einsum(flat, node) if node.op == "Einsum" else _match_product(flat, node)


def _match_product(flat: Flat, node: Node) -> Outcome[Fusion]:
    """Recognize a product of weights and values, whose heads are split and joined by other nodes."""
    values = split_heads(flat, node.inputs[1])
    if flat.adjoined(node) or not _is_softmax(flat, node.inputs[0]) or values is None or values.turned:
        return NoMatch()
    outcome = _read_scores(flat, node.inputs[0], values, _PRODUCTS)
    if not isinstance(outcome, Found):
        return outcome
    product = outcome.value.product
    query, key = (split_heads(flat, source) for source in product.inputs)
    turned = bool(attribute(product, "adj_y", False))
    if query is None or key is None or attribute(product, "adj_x", False) or key.turned == turned or query.turned:
        return Refused(f"'{product.name}' does not multiply positions with positions")
    if {(operand.count, operand.layout) for operand in (query, key)} != {(values.count, values.layout)}:
        return Refused(f"'{product.name}' and '{node.name}' split heads in different ways")
    root = joined_heads(flat, node.output(), values)
    if root is None:
        return Refused(f"heads of '{node.name}' are not joined side by side again")
    return _fusion(flat, root, query, key, values, outcome.value)


def _match_einsum(flat: Flat, node: Node) -> Outcome[Fusion]:
    """Recognize Keras's `acbe,aecd->abcd` over `aecd,abcd->acbe`."""
    parts = _terms_of_equation(node)
    if parts is None:
        return NoMatch()
    (left, right), result = parts
    for place, (weights, values) in enumerate(((left, right), (right, left))):
        if len(result) != 4 or len(weights) != 4 or values[:1] + values[2:] != result[:1] + result[2:]:
            continue
        if weights != result[0] + result[2] + result[1] + values[1] or not _is_softmax(flat, node.inputs[place]):
            continue
        given = skip(flat.graph, node.inputs[1 - place])
        sizes = flat.known(given)
        if len(sizes) != 4 or not sizes[2] or not sizes[3]:
            return Refused(f"heads of '{given.node}' are not known")
        heads = Heads(given, sizes[2], "bhtd")
        outcome = _read_scores(flat, node.inputs[place], heads, ("Einsum",))
        if not isinstance(outcome, Found):
            return outcome
        operands = _dot_operands(outcome.value.product)
        if operands is None:
            return Refused(f"'{outcome.value.product.name}' does not multiply positions with positions")
        query, key = (Heads(skip(flat.graph, operand), sizes[2], "bhtd") for operand in operands)
        return _fusion(flat, node.output(), query, key, heads, outcome.value)
    return NoMatch()


def _terms_of_equation(node: Node) -> tuple[tuple[str, str], str] | None:
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, _, result = equation.partition("->")
    operands = left.split(",")
    if len(operands) != 2 or "." in equation or any(len(set(term)) != len(term) for term in (*operands, result)):
        return None
    return (operands[0], operands[1]), result


def _dot_operands(node: Node) -> tuple[Output, Output] | None:
    """Return the queries and keys of `aecd,abcd->acbe`."""
    parts = _terms_of_equation(node)
    if parts is None:
        return None
    (left, right), result = parts
    for place, (query, key) in enumerate(((left, right), (right, left))):
        if len(query) != 4 or len(key) != 4 or query[:1] + query[2:] != key[:1] + key[2:]:
            continue
        if result == query[0] + query[2] + query[1] + key[1] and query[1] != key[1]:
            return node.inputs[place], node.inputs[1 - place]
    return None


def _is_softmax(flat: Flat, output: Output) -> bool:
    node = flat.direct(output, "Softmax", "Mul")
    if node is not None and node.op == "Mul":
        return any(flat.direct(source, "Softmax") is not None for source in node.inputs)
    return node is not None


def _read_scores(flat: Flat, output: Output, heads: Heads, products: tuple[str, ...]) -> Outcome[_Scores]:
    """Follow weights back to the product of queries with keys."""
    masks: dict[str, MakeMask] = {}
    times = flat.direct(output, "Mul")
    if times is not None:
        side = 0 if flat.direct(times.inputs[0], "Softmax") is not None else 1
        gate = _gate(flat, times.inputs[1 - side], heads)
        if gate is None:
            return Refused(f"'{times.name}' does not multiply the weights with one number for each query")
        masks["gate"] = lambda: gate
        output = times.inputs[side]
    softmax = flat.direct(output, "Softmax")
    if softmax is None:
        return NoMatch()
    found = _Scores(softmax, masks=masks)
    output, stage = softmax.inputs[0], 0
    while True:
        node = flat.direct(output, *products, "SelectV2", *_ADDS, "Mul", "RealDiv")
        if node is None:
            return NoMatch()
        if node.op in products:
            found.product = node
            return Found(found)
        step = _read_step(flat, node, heads, found)
        if not isinstance(step, Found):
            return step
        output, step_stage = step.value
        if step_stage < stage:
            return Refused(f"'{node.name}' comes before other masks, expected scale, bias and selection in this order")
        stage = step_stage


#: The operand of an op between product and softmax, and the place of the op in the order of such ops.
_Step = tuple[Output, int]


def _read_step(flat: Flat, node: Node, heads: Heads, found: _Scores) -> Outcome[_Step]:
    """Read one op between product and softmax, and record in `found` what it does."""
    if node.op == "Sub":
        return _read_shift(flat, node)
    if node.op == "SelectV2":
        return _read_selection(flat, node, heads, found)
    if node.op in _ADDS:
        return _read_bias(flat, node, heads, found)
    for side in (0, 1) if node.op == "Mul" else (0,):
        number = flat.scalar(node.inputs[1 - side])
        if number is not None and number:
            found.scale *= number if node.op == "Mul" else 1.0 / number
            return Found((node.inputs[side], 3))
    return NoMatch()


def _read_shift(flat: Flat, node: Node) -> Outcome[_Step]:
    """Skip the subtraction of the largest number of each row, which does not change a softmax."""
    largest = flat.direct(node.inputs[1], "Max")
    last = len(flat.known(node.output())) - 1
    same = largest is not None and skip(flat.graph, largest.inputs[0]) == skip(flat.graph, node.inputs[0])
    if largest is not None and same and flat.reduced(largest) == (last,):
        return Found((node.inputs[0], 0))
    return Refused(f"'{node.name}' subtracts from scores, expected the largest of each row")


def _read_selection(flat: Flat, node: Node, heads: Heads, found: _Scores) -> Outcome[_Step]:
    padding = flat.scalar(node.inputs[2])
    make_mask = _condition(flat, node.inputs[0], heads)
    if padding is None or make_mask is None:
        return Refused(f"'{node.name}' selects scores by a mask that is not known to be of positions")
    if "condition" in found.masks:
        return Refused(f"'{node.name}' is a second selection, expected one")
    found.padding, found.masks["condition"] = padding, make_mask
    return Found((node.inputs[1], 1))


def _read_bias(flat: Flat, node: Node, heads: Heads, found: _Scores) -> Outcome[_Step]:
    for side in (0, 1):
        if _leads_to_product(flat, node.inputs[side]):
            make_mask = _bias(flat, node.inputs[1 - side], heads)
            if make_mask is None or "bias" in found.masks:
                return Refused(f"'{node.name}' adds a tensor to scores, expected one with rows, heads and positions")
            found.masks["bias"] = make_mask
            return Found((node.inputs[side], 2))
    return NoMatch()


def _leads_to_product(flat: Flat, output: Output) -> bool:
    node = flat.direct(output, *_PRODUCTS, "Einsum", "Mul", "RealDiv", "Add", "AddV2")
    if node is None or node.op not in {"Mul", "RealDiv", "Add", "AddV2"}:
        return node is not None
    return any(_leads_to_product(flat, source) for source in node.inputs[: 1 if node.op == "RealDiv" else 2])


def _gate(flat: Flat, output: Output, heads: Heads) -> Output | None:
    """Return the tensor [rows, queries] that is repeated for each head and key."""
    if heads.layout not in {"ntd", "btd"} or not flat.is_float(output):
        return None
    return untiled(flat, output, 2, heads.count)


def _condition(flat: Flat, output: Output, heads: Heads) -> MakeMask | None:
    """Return a function that makes the mask of a selection in four dimensions."""
    if heads.layout == "bhtd":
        return _in_four_dimensions(flat, output)
    if heads.layout not in {"ntd", "btd"}:
        return None
    compared = flat.direct(output, *_COMPARISONS)
    number = (
        None if compared is None else next((i for i in (1, 0) if flat.scalar(compared.inputs[i]) is not None), None)
    )
    if compared is None or number is None or flat.shape_of(skip(flat.graph, compared.inputs[number])) != ():
        compared = None
    tiled = output if compared is None or number is None else compared.inputs[1 - number]
    mask = untiled(flat, tiled, 1, heads.count)
    keys = None if mask is None else flat.known(tiled)[2]
    if mask is None or not keys:
        return None

    def make() -> Output:
        given = mask
        if compared is not None and number is not None:
            inputs = [given, compared.inputs[1]] if number else [compared.inputs[0], given]
            given = flat.graph.add(
                compared.op, inputs, name=f"{compared.name}/mask", attrs=dict(compared.attrs)
            ).output()
        return add_reshape(flat.graph, given, bool, (-1, 1, 1, keys), f"{given.node}/heads")

    return make


def _bias(flat: Flat, output: Output, heads: Heads) -> MakeMask | None:
    return _in_four_dimensions(flat, output) if heads.layout in {"bhtd", "btd"} and flat.is_float(output) else None


def _in_four_dimensions(flat: Flat, output: Output) -> MakeMask | None:
    """Return a function that gives a mask, in four dimensions, for scores [rows, heads, queries, keys]."""
    sizes = flat.known(output)
    if len(sizes) == 4:
        return lambda: skip(flat.graph, output)
    if len(sizes) == 2 and None not in sizes:
        dtype = dtype_of(flat.graph, output)
        return lambda: add_reshape(
            flat.graph, output, dtype, (1, 1, *(size or 0 for size in sizes)), f"{output.node}/heads"
        )
    if len(sizes) == 3 and sizes.count(None) <= 1:
        dtype = dtype_of(flat.graph, output)
        target = [-1 if size is None else size for size in (sizes[0], 1, *sizes[1:])]
        return lambda: add_reshape(flat.graph, output, dtype, target, f"{output.node}/heads")
    return None


def _fusion(flat: Flat, root: Output, query: Heads, key: Heads, value: Heads, scores: _Scores) -> Outcome[Fusion]:
    if not all(flat.is_float(heads.given) for heads in (query, key, value)):
        return Refused(f"'{query.given.node}' is not float32")
    sizes = flat.known(query.given)
    dims = flat.known(value.given)
    width = dims[2] if len(dims) == 3 else (dims[2] or 0) * (dims[3] or 0)
    shape = (None, sizes[1], width)
    whole = (None, sizes[1], value.count, (width or 0) // value.count)
    known = flat.known(root)
    if not reshapable(flat, root) and len(known) not in (3, 4):
        return Refused(f"shape of '{root.node}' is not known")
    inputs: list[Any] = [query.given, key.given, value.given]
    attrs: dict[str, Any] = {"heads": value.count, "scale": scores.scale, "padding": scores.padding}
    for name, count in (("bias", "num_biases"), ("condition", "num_conditions"), ("gate", "num_gates")):
        attrs[count] = int(name in scores.masks)
        if name in scores.masks:
            inputs.append(scores.masks[name]())
    return Found(Fusion(root, "RecHeadAttention", inputs, attrs, shape, whole))

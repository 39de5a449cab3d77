# SPDX-License-Identifier: Apache-2.0
"""Fold batch normalization, and other scaling and shifting by known vectors, into adjacent weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_tools.analysis.shapes import shapes
from graph_tools.graph import Node, Output, attribute
from graph_tools.live import contiguous, generic
from graph_tools.model import Model
from graph_tools.recognition.towers.affine import LINEAR, Affine, Affines, Weights
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import Array

# Adding an offset of this size causes an error of that many times the last digit of float32: 64 · 6e-8 = 4e-6.
_OFFSET = 64.0
_WHY = "scaling and shifting by known vectors, folded into '{}'"


class FoldBatchNorms(Pass):
    """Fold the scale and offset of batch normalization into a MatMul or convolution before or a MatMul after it.

    Before: `MatMul(x, W) → BiasAdd(b) → Mul(s) → Add(t)`, `Relu → Mul(s) → Add(t) → MatMul(W)`, or FusedBatchNorm.
    After: `MatMul(x, W · s) → BiasAdd(b · s + t)`, `Relu → MatMul(s · W) → BiasAdd(t @ W)`.
    If there are no weights next to it: `Mul(s) → AddV2(t)`.

    It runs after `fold_constants`, which computes s and t from moments that are variables. Weights are computed in
    float64 and stored in their original type; scores change by rounding only.
    """

    name = "fold_batch_norms"

    def process(self, model: Model, result: PassResult) -> None:
        for step in (self._into_previous, self._into_next, self._alone):
            affines = Affines(model, shapes(model))
            for node in model.graph:
                if node.name not in model.graph:
                    continue
                if node.name in self.left_alone:
                    result.refused.append((node.name, self.left_alone[node.name]))
                    continue
                before = result.applied
                step(affines, node, result)
                result.at += [node.name] * (result.applied > before)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the batch normalizations with known moments, unless they lose too many digits.

        Chains of other ops that scale and shift are not checked: whether they are folded depends on the users of the
        weights next to them, which the pass examines while it rewrites.
        """
        affines = Affines(model, shapes(model))
        for node in model.graph:
            affine = affines.of(node) if node.op.startswith("FusedBatchNorm") else None
            if affine is not None and node.name not in self.left_alone and not _imprecise(affine):
                yield node.name

    def _into_previous(self, affines: Affines, node: Node, result: PassResult) -> None:
        if node.op not in LINEAR or node.name in affines.roots or attribute(node, "data_format", b"NHWC") != b"NHWC":
            return
        chain = affines.chain(node.output())
        if chain is None or not (chain.scales or len(chain.nodes) > 1):
            return
        model, weights = affines.model, Weights(affines, node)
        sharers = weights.sharers()
        refusal = weights.refusal() or _disagreement(chain, [affines.chain(sharer.output()) for sharer in sharers])
        if any(sharer.name in affines.roots for sharer in sharers):
            refusal = refusal or "a signature names another node that uses its weights"
        if refusal:
            if chain.scales:
                result.refused.append((chain.nodes[-1], f"'{node.name}': {refusal}"))
            return
        weights.scale_outputs(chain.scale)
        for sharer in sharers:
            affine = affines.chain(sharer.output())
            assert affine is not None
            offset = np.broadcast_to(affine.offset, (weights.channels,))
            self._become_bias(model, model.graph[affine.nodes[-1]], sharer.output(), offset, attribute(sharer, "T"))
            self._sweep(model, affine, sharer.name)
        result.applied += 1

    def _into_next(self, affines: Affines, node: Node, result: PassResult) -> None:
        if not _may_follow(node):
            return
        chain = _chain_before(affines, node)
        if chain is None or (affines.graph[chain.source.node].op in LINEAR and not chain.scales):
            return
        model, weights = affines.model, Weights(affines, node)
        sharers = weights.sharers()
        chains = [_chain_before(affines, sharer) if _may_follow(sharer) else None for sharer in sharers]
        refusal = weights.refusal() or _imprecise(chain) or _disagreement(chain, chains)
        if refusal:
            result.refused.append((chain.nodes[-1], f"'{node.name}': {refusal}"))
            return
        inputs = weights.source.shape[1 if weights.transposed else 0]
        biases = [
            weights.applied_to(np.broadcast_to(affine.offset, (inputs,))) for affine in chains if affine is not None
        ]
        weights.scale_inputs(chain.scale)
        for sharer, affine, bias in zip(sharers, chains, biases, strict=True):
            assert affine is not None
            self._insert_bias(affines, sharer, affine.source, bias)
            self._sweep(model, affine, sharer.name)
        result.applied += 1

    def _insert_bias(self, affines: Affines, node: Node, x: Output, bias: Array) -> None:
        """Change a MatMul's input to x and add a bias to its result, in the existing bias after it if there is one."""
        graph, dtype = affines.graph, attribute(node, "T")
        user = affines.only_user(node.output()) if node.name not in affines.roots else None
        after = affines.of(user) if user is not None else None
        if user is not None and after is not None and not after.scales:
            old = [source.node for source in user.inputs if source.node != node.name]
            graph.set_input(node, 0, x)
            self._become_bias(affines.model, user, node.output(), bias + after.offset, dtype)
            sweep(affines.model, old, _WHY.format(node.name))
            return
        if not bias.any():
            graph.set_input(node, 0, x)
            return
        product = graph.add("MatMul", [x, node.inputs[1]], name=f"{node.name}/MatMul", attrs=node.attrs)
        self._become_bias(affines.model, node, product.output(), bias, dtype)

    def _alone(self, affines: Affines, node: Node, result: PassResult) -> None:
        affine = affines.of(node)
        if affine is None:
            return
        before, alone = affines.graph[affine.source.node], affines.only_user(affine.source) is node
        if alone and before.name not in affines.roots and affines.of(before):
            return
        chain = affines.chain(affine.source) if alone else _chain_from(affines, affine)
        if chain is None or (len(chain.nodes) < 3 and not node.op.startswith("FusedBatchNorm")):
            return
        refusal = _imprecise(chain)
        if refusal:
            result.refused.append((chain.nodes[-1], refusal))
            return
        model, graph = affines.model, affines.graph
        dtype, last = attribute(node, "T"), graph[chain.nodes[-1]]
        scale = add_weight(model, f"{last.name}/scale", _cast(chain.scale, dtype))
        offset = add_weight(model, f"{last.name}/offset", _cast(chain.offset, dtype))
        before_last = [source.node for source in last.inputs]
        product = graph.add("Mul", [chain.source, scale], name=f"{last.name}/Mul", attrs={"T": dtype})
        graph.become(last, "AddV2", [product.output(), offset], {"T": dtype})
        sweep(model, before_last, _WHY.format(last.name))
        result.applied += 1

    def _become_bias(self, model: Model, node: Node, x: Output, bias: Array, dtype: Any) -> None:
        graph = model.graph
        before = [source.node for source in node.inputs if source.node != x.node]
        if bias.any():
            value = add_weight(model, f"{node.name}/bias", _cast(bias, dtype))
            graph.become(node, "BiasAdd", [x, value], {"T": dtype, "data_format": "NHWC"})
        else:
            graph.become(node, "Identity", [x], {"T": dtype})
        sweep(model, before, _WHY.format(x.node))

    def _sweep(self, model: Model, chain: Affine, where: str) -> None:
        sweep(model, reversed(chain.nodes), _WHY.format(where))


def _may_follow(node: Node) -> bool:
    return node.op == "MatMul" and not attribute(node, "transpose_a", False) and not node.controls


def _disagreement(chain: Affine, others: list[Affine | None]) -> str | None:
    """Return a reason if nodes that share weights need different scales; None if not."""
    if all(affine is not None and np.array_equal(affine.scale, chain.scale) for affine in others):
        return None
    return "another node uses its weights too, expected the same scaling of all"


def _chain_before(affines: Affines, node: Node) -> Affine | None:
    """Combine the nodes that lead to the first input of a node, each used by the next one only."""
    whole: Affine | None = None
    output = node.inputs[0]
    while output.node not in affines.roots and len(affines.graph.users(output.node)) == 1 and output.port == 0:
        affine = affines.of(affines.graph[output.node])
        if affine is None:
            break
        whole = affine if whole is None else affine.then(whole)
        output = affine.source
    return whole


def _chain_from(affines: Affines, first: Affine) -> Affine:
    after = affines.chain(Output(first.nodes[0])) if first.nodes[0] not in affines.roots else None
    return first if after is None else first.then(after)


def _imprecise(chain: Affine) -> str | None:
    largest = float(np.max(np.abs(generic(chain.offset))))
    if chain.shifted_first and largest > _OFFSET:
        return f"it shifts by {largest:.3g} after scaling, expected at most {_OFFSET:g} for enough exact digits"
    return None


def _cast(value: Array, dtype: Any) -> Array:
    return contiguous(value, dtype.as_numpy_dtype)

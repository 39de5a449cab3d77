# SPDX-License-Identifier: Apache-2.0
"""Let signatures share the inputs that they have in common."""

from __future__ import annotations

from dataclasses import replace

from graph_tools.graph import Node, Output
from graph_tools.model import Endpoint, Model
from graph_tools.passes._sweep import sweep
from graph_tools.passes.base import Pass, PassResult

_DEFAULT = "serving_default"


class ShareInputs(Pass):
    """Feed inputs of one name, dtype and shape in several signatures through one placeholder.

    Before: `serve_x → MatMul → …`, `serving_default_x → MatMul → …`, as Keras exports one model under two signatures.
    After: `serving_default_x → MatMul → …` and `serving_default_x → MatMul → …`, which `merge_duplicates` then merges.

    A request runs one signature, so no two of them feed the placeholder at once. Keys, dtypes and shapes of all
    signatures stay, and tensor names those of `serving_default`, or else of the signature that comes first.
    """

    name = "share_inputs"

    def apply(self, model: Model) -> PassResult:
        result = PassResult(self.name, nodes_before=len(model.graph))
        order = sorted(model.signatures, key=lambda name: (name != _DEFAULT, name))
        first: dict[str, Endpoint] = {}
        for name in order:
            inputs = model.signatures[name].inputs
            for key, endpoint in inputs.items():
                held = first.setdefault(key, endpoint)
                if held.tensor == endpoint.tensor:
                    continue
                reason = self._difference(model, held, endpoint)
                if reason is None and held.tensor in {one.tensor for one in inputs.values()}:
                    reason = "the signature feeds the other one under another name"
                if reason is not None:
                    result.refused.append((str(endpoint.tensor), f"input '{key}' of signature '{name}': {reason}"))
                    continue
                self._merge(model, endpoint.tensor, held.tensor)
                why = f"input '{key}' of signature '{name}' is fed as '{held.tensor}', like that of another signature"
                sweep(model, [endpoint.tensor.node], why)
                result.applied += 1
        result.nodes_after = len(model.graph)
        return result

    def _difference(self, model: Model, one: Endpoint, other: Endpoint) -> str | None:
        nodes: list[Node] = [model.graph[endpoint.tensor.node] for endpoint in (one, other)]
        if any(node.op != "Placeholder" for node in nodes):
            return f"it is a {nodes[1].op} beside a {nodes[0].op}, expected two of Placeholder"
        if one.dtype != other.dtype:
            return f"it is {other.dtype.name} beside {one.dtype.name}, expected one dtype"
        if one.shape != other.shape or nodes[0].attrs.get("shape") != nodes[1].attrs.get("shape"):
            return f"its shape is {other.shape} beside {one.shape}, expected one shape"
        return None

    def _merge(self, model: Model, old: Output, new: Output) -> None:
        model.graph.replace(old, new)
        model.graph.replace_control(old.node, [new.node])
        for signature in model.signatures.values():
            for endpoints in (signature.inputs, signature.outputs):
                for key, endpoint in endpoints.items():
                    if endpoint.tensor == old:
                        endpoints[key] = replace(endpoint, tensor=new)

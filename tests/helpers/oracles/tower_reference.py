# SPDX-License-Identifier: Apache-2.0
"""Compute a RecDenseTower in NumPy and float64, directly from docs/fused_ops.md, and run models with it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Output, attribute
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import Feeds
from helpers.models.idiom_models import KEY

TOWER = "RecDenseTower"


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softmax": _softmax,
}


def _activate(x: np.ndarray, activation: dict[str, Any] | None, weights: list[np.ndarray]) -> np.ndarray:
    if activation is None:
        return x
    kind = activation["kind"]
    if kind == "leaky_relu":
        return np.where(x > 0, x, activation["alpha"] * x)
    if kind == "prelu":
        return np.where(x > 0, x, weights[activation["weight"]] * x)
    if kind == "dice":
        p = _sigmoid(x * weights[activation["scale"]] + weights[activation["shift"]])
        return p * x + (1 - p) * weights[activation["weight"]] * x
    result: np.ndarray = _ACTIVATIONS[kind](x)
    return result


def evaluate(plan: str | bytes, inputs: list[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
    """Compute the outputs of a tower: float32, with the leading dimensions of the input that has the most."""
    described = json.loads(plan)
    rows = max(math.prod(source.shape[:-1]) for source in inputs)
    assert {math.prod(source.shape[:-1]) for source in inputs} <= {1, rows}
    whole = [source for source in inputs if math.prod(source.shape[:-1]) == rows]
    lead = max((source.shape[:-1] for source in whole), key=len)
    weights = [weight.astype(np.float64) for weight in weights]
    values = {f"x{i}": source.astype(np.float64).reshape(-1, source.shape[-1]) for i, source in enumerate(inputs)}
    for number, layer in enumerate(described["layers"]):
        values[f"h{number}"] = _activate(_layer(layer, values, weights), layer.get("activation"), weights)
    outputs = [np.broadcast_to(values[name], (rows, values[name].shape[-1])) for name in described["outputs"]]
    return [output.astype(np.float32).reshape(*lead, output.shape[-1]) for output in outputs]


def _layer(layer: dict[str, Any], values: dict[str, np.ndarray], weights: list[np.ndarray]) -> np.ndarray:
    x = [values[name] for name in layer["inputs"]]
    if layer["op"] == "dense":
        kernels = [weights[i].T if layer.get("transpose") else weights[i] for i in layer["weights"]]
        result = sum(term @ kernel for term, kernel in zip(x, kernels, strict=True))
        if "bias" in layer:
            assert weights[layer["bias"]].shape == (kernels[0].shape[1],)
            result = result + weights[layer["bias"]]
        for addend in layer.get("add", []):
            assert values[addend].shape[-1] == kernels[0].shape[1]
            result = result + values[addend]
        return np.asarray(result)
    if layer["op"] == "affine":
        for name in {"scale", "shift"} & set(layer):
            assert weights[layer[name]].shape in {(1,), (x[0].shape[-1],)}
        result = x[0] * weights[layer["scale"]] if "scale" in layer else x[0]
        return result + weights[layer["shift"]] if "shift" in layer else result
    if layer["op"] == "concat":
        rows = max(map(len, x))
        return np.concatenate([np.broadcast_to(part, (rows, part.shape[-1])) for part in x], -1)
    if layer["op"] == "layer_norm":
        normed = (x[0] - x[0].mean(-1, keepdims=True)) / np.sqrt(x[0].var(-1, keepdims=True) + layer["epsilon"])
        normed = normed * weights[layer["gamma"]] if "gamma" in layer else normed
        return normed + weights[layer["beta"]] if "beta" in layer else normed
    if layer["op"] == "mix":
        assert x[0].shape[-1] == len(x) - 1
        return np.asarray(sum(x[0][:, i : i + 1] * term for i, term in enumerate(x[1:])))
    assert len({term.shape[-1] for term in x}) == 1
    combined = x[0]
    for term in x[1:]:
        combined = combined + term if layer["op"] == "add" else combined * term
    return combined


def plans_of(model: Model) -> list[dict[str, Any]]:
    """Read the plans of a model's towers."""
    return [json.loads(attribute(node, "plan")) for node in model.graph.of(TOWER)]


def reference_answers(model: Model, out: Path, feeds: list[Feeds], signature: str = KEY) -> list[dict[str, np.ndarray]]:
    """Run a model: NumPy computes the towers, stock TensorFlow the other nodes.

    Parameters
    ----------
    model : Model
        It is modified and must not be used afterwards.
    out : Path
        Folder that does not exist yet.
    """
    import tensorflow as tf

    graph = model.graph
    model.signatures = {signature: model.signatures[signature]}
    PruneUnreachable().apply(model)
    names = [node.name for node in graph.ordered() if node.op == TOWER]
    parts: list[tuple[str, str | bytes, list[str], list[str], list[str]]] = []
    inputs, outputs = dict(model.signatures[signature].inputs), dict(model.signatures[signature].outputs)
    for name in names:
        node = graph[name]
        count = attribute(node, "num_inputs")
        given: list[str] = []
        for i, source in enumerate(node.inputs):
            key = f"{name}/in{i}"
            holder = graph.add("Identity", [source], name=key, attrs={"T": tf.float32})
            outputs[key] = Endpoint(holder.output(), tf.float32, None)
            given.append(key)
        made: list[str] = []
        for port in range(attribute(node, "num_outputs")):
            key = f"{name}/out{port}"
            any_shape = tf.TensorShape(None).as_proto()
            holder = graph.add("Placeholder", name=key, attrs={"dtype": tf.float32, "shape": any_shape})
            inputs[key] = Endpoint(holder.output(), tf.float32, None)
            graph.replace(Output(name, port), holder.output())
            made.append(key)
        parts.append((name, attribute(node, "plan"), given[:count], given[count:], made))
    for name in names:
        graph.remove(name, "NumPy computes it")
    model.signatures = {signature: Signature(inputs, outputs)}
    write_saved_model(model, out)
    return [_answer(out, feed, parts, inputs, outputs, _inner(parts)) for feed in feeds]


def _inner(parts: list[Any]) -> set[str]:
    """Return the names of outputs that only towers read."""
    return {key for _, _, given, weights, _ in parts for key in [*given, *weights]}


def _answer(
    out: Path, feed: Feeds, parts: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], inner: set[str]
) -> dict[str, np.ndarray]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        v1.saved_model.load(session, ["serve"], str(out))
        fed = {str(inputs[key].tensor): value for key, value in feed.items()}
        for _, plan, given, weights, made in parts:
            found = session.run([str(outputs[key].tensor) for key in [*given, *weights]], fed)
            results = evaluate(plan, found[: len(given)], found[len(given) :])
            fed |= {str(inputs[key].tensor): value for key, value in zip(made, results, strict=True)}
        wanted = {key: str(output.tensor) for key, output in outputs.items() if key not in inner}
        answer: dict[str, np.ndarray] = session.run(wanted, fed)
        return answer

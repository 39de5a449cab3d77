# SPDX-License-Identifier: Apache-2.0
"""Generate random graphs of one fused op each, with the equivalent subgraph of stock ops, and requests to both.

Numbers in requests include NaN, infinities, -0 and denormals; ids may be negative, past the end of their table or the
largest possible; rows may be empty. Run as a program, it writes stock TensorFlow's outputs with the settings of its
process: `python stock_cases.py SEED COUNT OUT.npz`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from helpers.oracles.stock_draws import INTEGERS, Array, Case, Random, floats, plain, small, some_rows
from helpers.oracles.stock_groups import group

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "": lambda tf, x, w: x,
    "relu": lambda tf, x, w: tf.nn.relu(x),
    "relu6": lambda tf, x, w: tf.nn.relu6(x),
    "leaky_relu": lambda tf, x, w: tf.nn.leaky_relu(x, 0.25),
    "elu": lambda tf, x, w: tf.nn.elu(x),
    "selu": lambda tf, x, w: tf.nn.selu(x),
    "sigmoid": lambda tf, x, w: tf.sigmoid(x),
    "tanh": lambda tf, x, w: tf.tanh(x),
    "gelu": lambda tf, x, w: 0.5 * x * (1 + tf.math.erf(x * np.float32(0.7071067811865476))),
    "gelu_tanh": lambda tf, x, w: 0.5 * x * (1 + tf.tanh(np.float32(0.7978845608) * (x + 0.044715 * tf.pow(x, 3)))),
    "swish": lambda tf, x, w: x * tf.sigmoid(x),
    "softplus": lambda tf, x, w: tf.nn.softplus(x),
    "softmax": lambda tf, x, w: tf.nn.softmax(x),
    "prelu": lambda tf, x, w: tf.nn.relu(x) - w[0] * tf.nn.relu(-x),
    "dice": lambda tf, x, w: (p := tf.sigmoid(x * w[1] + w[2])) * x + (1 - p) * w[0] * x,
}
_WEIGHTS = {"prelu": ["weight"], "dice": ["weight", "scale", "shift"]}


class _Tower:
    """Collect the layers of a random tower, with the equivalent steps in stock TensorFlow and their weights."""

    def __init__(self, random: Random) -> None:
        self.layers: list[dict[str, Any]] = []
        self.steps: list[Callable[..., Any]] = []
        self.weights: list[Array] = []
        self._random = random

    @property
    def last(self) -> str:
        """Return the name of the last layer."""
        return f"h{len(self.layers) - 1}"

    def weight(self, *shape: int) -> int:
        self.weights.append(plain(self._random, *shape))
        return len(self.weights) - 1

    def add(self, layer: dict[str, Any], width: int, step: Callable[..., Any], activations: list[str]) -> None:
        """Add a layer with one of these activations."""
        name = str(self._random.choice(activations))
        own = [self.weight(width) for _ in _WEIGHTS.get(name, [])]
        if name:
            layer["activation"] = {"kind": name, **dict(zip(_WEIGHTS.get(name, []), own, strict=True))}
            layer["activation"] |= {"alpha": 0.25} if name == "leaky_relu" else {}
        self.layers.append(layer)
        self.steps.append(lambda tf, v, w: ACTIVATIONS[name](tf, step(tf, v, w), [w[i] for i in own]))

    def add_combination(self, combiner: str, width: int) -> None:
        step = {
            "add": lambda tf, v, w: v["x0"] + v["x1"],
            "multiply": lambda tf, v, w: v["x0"] * v["x1"],
            "concat": lambda tf, v, w: tf.concat([v["x0"], v["x1"]], -1),
        }[combiner]
        self.add({"op": combiner, "inputs": ["x0", "x1"]}, width, step, ["", "relu", "tanh"])

    def add_affine(self, units: int) -> None:
        scale, shift, source = self.weight(units), self.weight(units), self.last
        self.add(
            {"op": "affine", "inputs": [source], "scale": scale, "shift": shift}, units,
            lambda tf, v, w: v[source] * w[scale] + w[shift], ["", "relu", "sigmoid"],
        )  # fmt: skip

    def add_layer_norm(self, units: int) -> None:
        gamma, beta, source = self.weight(units), self.weight(units), self.last
        layer = {"op": "layer_norm", "inputs": [source], "gamma": gamma, "beta": beta, "epsilon": 1e-3}

        def norm(tf: Any, v: Any, w: Any) -> Any:
            mean = tf.reduce_mean(v[source], -1, keepdims=True)
            variance = tf.reduce_mean(tf.math.squared_difference(v[source], mean), -1, keepdims=True)
            return (v[source] - mean) * tf.math.rsqrt(variance + 1e-3) * w[gamma] + w[beta]

        self.layers.append(layer)
        self.steps.append(norm)


def tower(random: Random) -> Case:
    rows, k, units = some_rows(random), small(random), small(random, 20)
    inputs = [floats(random, rows, k), floats(random, rows, k)]
    made = _Tower(random)
    combiner = str(random.choice(["add", "multiply", "concat", "none"]))
    width = 2 * k if combiner == "concat" else k
    if combiner != "none":
        made.add_combination(combiner, width)
    kernel, bias = made.weight(width, units), made.weight(units)
    source = "h0" if combiner != "none" else "x0"
    made.add(
        {"op": "dense", "inputs": [source], "weights": [kernel], "bias": bias}, units,
        lambda tf, v, w: tf.matmul(v[source], w[kernel]) + w[bias], list(ACTIVATIONS),
    )  # fmt: skip
    if random.random() < 0.5:
        made.add_affine(units)
    elif random.random() < 0.5:
        made.add_layer_norm(units)
    out = made.last
    final_kernel = made.weight(units, 3)
    made.add(
        {"op": "dense", "inputs": [out], "weights": [final_kernel]}, 3,
        lambda tf, v, w: tf.matmul(v[out], w[final_kernel]), ["", "sigmoid", "softmax"],
    )  # fmt: skip

    def stock(tf: Any, *given: Any) -> list[Any]:
        values = {"x0": given[0], "x1": given[1]}
        for number, step in enumerate(made.steps):
            values[f"h{number}"] = step(tf, values, given[2:])
        return [values[out], values[made.last]]

    plan = {"version": 1, "layers": made.layers, "outputs": [out, made.last]}
    attributes = {"num_inputs": 2, "num_weights": len(made.weights), "num_outputs": 2, "plan": json.dumps(plan)}
    return Case("RecDenseTower", [*inputs, *made.weights], attributes | {"precision": "fp32"}, stock, 2)


def fm(random: Random) -> Case:
    x = floats(random, some_rows(random), small(random), small(random, 20))
    output = str(random.choice(["sum", "vector"]))

    def stock(tf: Any, x: Any) -> list[Any]:
        made = 0.5 * (tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(tf.square(x), 1))
        return [tf.reduce_sum(made, 1, keepdims=True) if output == "sum" else made]

    return Case("RecFmInteraction", [x], {"output": output}, stock)


def dot(random: Random) -> Case:
    rows, count, dim = some_rows(random), small(random), small(random, 20)
    pairs = [i * count + j for i in range(count) for j in range(i + 1)]
    attributes = {"pairs": pairs, "num_fields": count}

    def stock(tf: Any, x: Any) -> list[Any]:
        products = tf.reshape(tf.matmul(x, x, transpose_b=True), [-1, count * count])
        return [tf.gather(products, pairs, axis=1)]

    return Case("RecDotInteraction", [floats(random, rows, count, dim)], attributes, stock)


def product(random: Random) -> Case:
    rows, count, dim = some_rows(random), small(random, 4) + 1, small(random, 12)
    some = [(i, j) for i in range(count) for j in range(i + 1, count)]
    left, right = [i for i, _ in some], [j for _, j in some]
    kind = str(random.choice(["scalar", "vector", "matrix"]))
    shape = {"scalar": [len(some)], "vector": [len(some), dim], "matrix": [dim, len(some), dim]}[kind]

    def stock(tf: Any, x: Any, kernel: Any) -> list[Any]:
        p, q = tf.gather(x, left, axis=1), tf.gather(x, right, axis=1)
        if kind == "scalar":
            return [tf.reduce_sum(p * q, -1) * kernel]
        if kind == "vector":
            return [tf.reduce_sum(p * q * kernel, -1)]
        summed = tf.transpose(tf.reduce_sum(p[:, None] * kernel, -1), [0, 2, 1])
        return [tf.reduce_sum(summed * q, -1)]

    attributes = {"kind": kind, "pairs": [i * count + j for i, j in some], "num_fields": count}
    return Case("RecProduct", [floats(random, rows, count, dim), plain(random, *shape)], attributes, stock)


def cross(random: Random) -> Case:
    rows, k, count = some_rows(random), small(random, 20), small(random, 3)
    version = str(random.choice(["vector", "matrix", "low_rank"]))
    rank = small(random)
    shapes = {"vector": [(k,)], "matrix": [(k, k)], "low_rank": [(k, rank), (rank, k)]}[version]
    kernels = [plain(random, *shape) for _ in range(count) for shape in shapes]
    biases = [plain(random, k) for _ in range(count)]

    def stock(tf: Any, x0: Any, *weights: Any) -> list[Any]:
        x = x0
        for layer in range(count):
            kernel = weights[layer * len(shapes) : (layer + 1) * len(shapes)]
            bias = weights[count * len(shapes) + layer]
            if version == "vector":
                x = x0 * tf.matmul(x, kernel[0][:, None]) + bias + x
            else:
                made = x
                for factor in kernel:
                    made = tf.matmul(made, factor)
                x = x0 * (made + bias) + x
        return [x]

    attributes = {"num_kernels": len(kernels), "num_biases": count, "version": version}
    return Case("RecCrossNetwork", [floats(random, rows, k), *kernels, *biases], attributes, stock)


def _mask(random: Random, rows: int, length: int) -> Array:
    kind = random.integers(0, 4)
    if kind == 0:
        return random.random((rows, length)) < 0.6
    if kind == 1:
        return (random.random((rows, length)) < 0.6).astype(np.float32)
    lengths = random.integers(-1, length + 2, rows)
    lengths[: rows // 3] = random.choice(INTEGERS[:3], rows // 3)
    return lengths if kind == 2 else np.clip(lengths, -5, 100).astype(np.int32)


def _weights(tf: Any, mask: Any, length: int) -> Any:
    """Return the weights [rows, length] of a mask."""
    if mask.dtype in (tf.int32, tf.int64):
        return tf.cast(tf.range(length, dtype=mask.dtype) < mask[:, None], tf.float32)
    return tf.cast(mask, tf.float32)


def pooling(random: Random) -> Case:
    rows, length, dim = some_rows(random), small(random), small(random, 20)
    mask = _mask(random, rows, length)
    combiner = str(random.choice(["sum", "epsilon", "least", "no_nan", "as_is", "max", "shift"]))
    if combiner == "no_nan" and mask.dtype == np.float32:
        combiner = "epsilon"  # no_nan may only divide by counts, which a float mask does not give
    more: dict[str, Any] = {
        "epsilon": {"epsilon": 1e-8}, "least": {"least": 1.0}, "no_nan": {"least": 1e-30},
        "max": {"padding": -2.5}, "shift": {"padding": -1e9, "shift": True},
    }.get(combiner, {})  # fmt: skip

    def stock(tf: Any, x: Any, mask: Any) -> list[Any]:
        weights = _weights(tf, mask, length)[:, :, None]
        if combiner == "max":
            return [tf.reduce_max(tf.where(weights != 0, x, -2.5), 1)]
        if combiner == "shift":
            return [tf.reduce_max(x - (1 - weights) * 1e9, 1)]
        total, count = tf.reduce_sum(x * weights, 1), tf.reduce_sum(weights, 1)
        return [
            {
                "sum": lambda: total,
                "epsilon": lambda: total / (count + 1e-8),
                "least": lambda: total / tf.maximum(count, 1),
                "no_nan": lambda: tf.math.divide_no_nan(total, count),
                "as_is": lambda: total / count,
            }[combiner]()
        ]

    name = combiner if combiner == "sum" else "max" if combiner in {"max", "shift"} else "mean"
    attributes = {"Tmask": mask.dtype, "combiner": name, **more}
    return Case("RecSequencePooling", [floats(random, rows, length, dim), mask], attributes, stock)


_PARTS: dict[str, Any] = {
    "query": lambda tf, q, k: tf.broadcast_to(q, tf.shape(k)),
    "key": lambda tf, q, k: k,
    "query-key": lambda tf, q, k: q - k,
    "key-query": lambda tf, q, k: k - q,
    "product": lambda tf, q, k: q * k,
}
_UNIT = ["", "relu", "leaky_relu", "sigmoid", "tanh", "prelu", "dice"]


def attention(random: Random) -> Case:
    rows, length, dim = some_rows(random), small(random), small(random, 12)
    parts = [str(part) for part in random.choice(list(_PARTS), small(random, 4))]
    names = [str(random.choice(_UNIT)), ""]
    weights: list[Array] = []
    inputs = len(parts) * dim
    for units, name in zip((small(random, 20), 1), names, strict=True):
        weights += [plain(random, inputs, units), plain(random, units)]
        weights += [plain(random, units) for _ in _WEIGHTS.get(name, [])]
        inputs = units
    mask = _mask(random, rows, length)
    softmax = bool(random.random() < 0.6)
    padding = float(random.choice([0.0, -4294967295.0, -9.0]))

    def stock(tf: Any, query: Any, keys: Any, mask: Any, *weights: Any) -> list[Any]:
        x = tf.concat([_PARTS[part](tf, query[:, None], keys) for part in parts], -1)
        left = list(weights)
        for name in names:
            kernel, bias = left.pop(0), left.pop(0)
            more = [left.pop(0) for _ in _WEIGHTS.get(name, [])]
            x = ACTIVATIONS[name](tf, tf.matmul(x, kernel) + bias, more)
        scores = tf.where(_weights(tf, mask, length)[:, None] != 0, tf.transpose(x, [0, 2, 1]), padding)
        return [tf.matmul(tf.nn.softmax(scores) if softmax else scores, keys)[:, 0]]

    attributes = {
        "num_masks": 1, "Tmask": mask.dtype.type, "num_weights": len(weights), "parts": parts, "activations": names,
        "alphas": [0.25, 0.25], "softmax": softmax, "padding": padding,
    }  # fmt: skip
    given = [floats(random, rows, dim), floats(random, rows, length, dim), mask]
    return Case("RecTargetAttention", [*given, *weights], attributes, stock)


def heads(random: Random) -> Case:
    rows, queries, keys, count, dim = some_rows(random), *(small(random, 5) for _ in range(4))
    given = [floats(random, rows, size, count * dim) for size in (queries, keys, keys)]
    condition = random.random((rows, 1, 1, keys)) < 0.7

    def stock(tf: Any, query: Any, key: Any, value: Any, condition: Any) -> list[Any]:
        q, k, v = (
            tf.transpose(tf.reshape(source, [-1, size, count, dim]), [0, 2, 1, 3])
            for source, size in ((query, queries), (key, keys), (value, keys))
        )
        scores = tf.where(condition, tf.matmul(q, k, transpose_b=True) * 0.5, -1e9)
        made = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        return [tf.reshape(made, [-1, queries, count * dim])]

    attributes = {"heads": count, "scale": 0.5, "padding": -1e9, "num_conditions": 1}
    return Case("RecHeadAttention", [*given, condition], attributes, stock)


_GATES = {"gru": 3, "gru_reset_before": 3, "lstm": 4}


def _step(tf: Any, cell: str, s: Any, states: tuple[Any, Any], recurrent: Any, more: Any) -> tuple[Any, Any]:
    """Return the state after a position, and the cell's; `s`: the contribution of the input."""
    h, c = states
    parts, columns = tf.split(s, _GATES[cell], 1), tf.split(recurrent, _GATES[cell], 1)
    if cell == "lstm":
        i, f, made, o = (part + tf.matmul(h, each) for part, each in zip(parts, columns, strict=True))
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(made)
        return tf.sigmoid(o) * tf.tanh(c), c
    own = tf.split(more, 3)
    z, r = (tf.sigmoid(parts[i] + tf.matmul(h, columns[i]) + own[i]) for i in (0, 1))
    if cell == "gru":
        made = tf.tanh(parts[2] + r * (tf.matmul(h, columns[2]) + own[2]))
    else:
        made = tf.tanh(parts[2] + tf.matmul(r * h, columns[2]))
    return z * h + (1 - z) * made, c


def recurrent_layer(random: Random) -> Case:
    rows, length, k, units = some_rows(random), small(random), small(random), small(random, 20)
    cell = str(random.choice(list(_GATES)))
    width = _GATES[cell] * units
    weights = [plain(random, k, width), plain(random, units, width), plain(random, width)]
    weights += [plain(random, width)] if cell == "gru" else []
    mask = random.random((rows, length)) < 0.7
    backwards = bool(random.random() < 0.5)

    def stock(tf: Any, x: Any, mask: Any, kernel: Any, recurrent: Any, bias: Any, *more: Any) -> list[Any]:
        zero = tf.zeros([rows, units])
        states, made = (zero, zero), []
        for t in range(length)[:: -1 if backwards else 1]:
            s = tf.matmul(x[:, t], kernel) + bias
            after = _step(tf, cell, s, states, recurrent, more[0] if more else tf.zeros([width]))
            states = tuple(tf.where(mask[:, t, None], new, old) for new, old in zip(after, states, strict=True))
            made.append(states[0])
        return [tf.stack(made, 1)]

    attributes = {"cell": cell, "num_masks": 1, "num_biases": len(weights) - 2}
    attributes |= {"sequences": True, "backwards": backwards}
    return Case("RecRecurrentLayer", [floats(random, rows, length, k), mask, *weights], attributes, stock)


def outer(random: Random) -> Case:
    rows, m, n, dim = some_rows(random), small(random), small(random), small(random, 20)

    def stock(tf: Any, x: Any, y: Any) -> list[Any]:
        made = tf.transpose(x[:, :, None] * y[:, None], [0, 3, 1, 2])
        return [tf.reshape(made, [-1, dim, m * n])]

    return Case("RecFieldOuter", [floats(random, rows, m, dim), floats(random, rows, n, dim)], {}, stock)


def user_rows(random: Random) -> Case:
    """Build rows that are all equal, bit by bit, or all different: in both cases the output equals the input."""
    rows, dim = int(random.choice([1, 2, 5, 33])), small(random, 20)
    x = floats(random, rows, dim)
    if random.random() < 0.5:
        x[:] = x[:1]
    return Case(
        "RecExpandRows", [x, plain(random, rows, 1)], {"T": np.float32, "Tlike": np.float32}, lambda tf, x, _: [x]
    )


CASES: dict[str, Callable[[Random], Case]] = {
    "tower": tower, "fm": fm, "dot": dot, "product": product, "cross": cross, "pooling": pooling,
    "attention": attention, "heads": heads, "outer": outer,
    "recurrent_layer": recurrent_layer, "group": group, "user_rows": user_rows,
}  # fmt: skip


def cases(name: str, seed: int, count: int) -> Iterator[Case]:
    """Build the graphs of an op: the same for the same seed."""
    for number in range(count):
        yield CASES[name](np.random.default_rng([seed, number, *name.encode()]))


def stock_answers(case: Case) -> list[Array]:
    """Run the stock ops in TensorFlow, op by op."""
    import tensorflow as tf

    given = [tf.constant(array) for array in [*case.inputs, *case.tables]]
    return [tensor.numpy() for tensor in case.stock(tf, *given)]


def main() -> None:
    seed, count, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    made = {}
    for name in CASES:
        for number, case in enumerate(cases(name, seed, count)):
            for port, answer in enumerate(stock_answers(case)):
                made[f"{name}/{number}/{port}"] = answer
    np.savez(out, **made)


if __name__ == "__main__":
    main()

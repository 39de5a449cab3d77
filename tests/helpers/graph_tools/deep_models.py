# SPDX-License-Identifier: Apache-2.0
"""Provide a model of several dense layers, some of which read numbers of very different sizes, and its requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 32
WIDTHS = (64, 48, 32)
#: A number of this size leaves a row of 256 steps none for the others, which are about 1.
HUGE = 3e4


def build_deep(path: Path, huge: Collection[int] = (), widths: Sequence[int] = WIDTHS) -> Path:
    """x float32 [batch, 32] -> score [batch, 1]: layers of these widths with relu, and a last one.

    The layers in `huge` read one number of the size `HUGE` in each row, whose weights are nearly 0. For layer 0 it is
    the first feature, which `write_requests` then makes huge.
    """
    import tensorflow as tf

    random = np.random.default_rng(8)
    sizes = [FEATURES, *widths, 1]
    module = tf.Module()
    module.w, module.b = [], []
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        weights = random.normal(size=(rows, columns)).astype(np.float32) / np.float32(np.sqrt(rows / 2))
        bias = np.full(columns, 0.1, np.float32)
        if layer in huge:
            weights[0] *= np.float32(1e-2 / HUGE)
        if layer + 1 in huge:
            weights[:, 0], bias[0] = 0.0, HUGE
        module.w.append(tf.Variable(weights, name=f"w{layer}"))
        module.b.append(tf.Variable(bias, name=f"b{layer}"))

    @tf.function(input_signature=[tf.TensorSpec([None, FEATURES], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        for weights, bias in zip(module.w[:-1], module.b[:-1], strict=True):
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias))
        return {"score": tf.sigmoid(tf.nn.bias_add(tf.matmul(x, module.w[-1]), module.b[-1]))}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def write_requests(path: Path, rows: int = 600, huge: bool = False, seed: int = 3, **more: Any) -> Path:
    """Write recorded requests; with `huge`, the first feature is of the size `HUGE`."""
    x = np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32)
    if huge:
        x[:, 0] *= HUGE
    np.savez(path, x=x, **more)
    return path

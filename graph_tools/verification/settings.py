# SPDX-License-Identifier: Apache-2.0
"""How TensorFlow runs in a process: whether its own products go through oneDNN, which decides what relu makes of NaN.

TensorFlow computes a product, its bias and its relu together. With oneDNN, which is the default on CPUs with
AVX512_VNNI or newer, a NaN becomes 0 there; without oneDNN, or where something stands between them, it stays one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

#: TensorFlow reads it once, when it is loaded.
VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


@dataclass(frozen=True)
class Settings:
    """How TensorFlow ran when models were asked.

    Attributes
    ----------
    onednn : bool
        Whether its products went through oneDNN, as observed.
    variable : str or None
        What `TF_ENABLE_ONEDNN_OPTS` was set to; None: nothing, so that TensorFlow decided by the CPU.
    """

    onednn: bool
    variable: str | None


@cache
def settings_here() -> Settings:
    """Observe how TensorFlow runs in this process, which loads it if need be."""
    return Settings(_drops_nan(), os.environ.get(VARIABLE))


def _drops_nan() -> bool:
    """Say whether relu after a product with a bias makes 0 of NaN."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4])
        weights = v1.placeholder(tf.float32, [4, 4])
        score = tf.identity(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), weights[0])), name="score")
        found = session.run(score, {x: np.full((1, 4), np.nan, np.float32), weights: np.ones((4, 4), np.float32)})
    return not bool(np.isnan(found).any())

# SPDX-License-Identifier: Apache-2.0
"""Find out whether TensorFlow computes its own products with oneDNN, which decides how relu treats NaN.

TensorFlow computes a product, its bias and its relu together. With oneDNN, which is the default on CPUs with
AVX512_VNNI or newer, NaN becomes 0 there. Without oneDNN, or if another op is between them, NaN stays NaN.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

#: TensorFlow reads this variable once, when it is loaded.
VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


@dataclass(frozen=True)
class Settings:
    """How TensorFlow ran during the verification.

    Attributes
    ----------
    onednn : bool
        True if its products were computed with oneDNN, as observed.
    variable : str or None
        Value of `TF_ENABLE_ONEDNN_OPTS`; None: not set, so TensorFlow decided by the CPU.
    """

    onednn: bool
    variable: str | None


@cache
def settings_here() -> Settings:
    """Return how TensorFlow runs in this process; this loads TensorFlow if needed."""
    return Settings(_drops_nan(), os.environ.get(VARIABLE))


def _drops_nan() -> bool:
    """Return whether relu after a product with a bias turns NaN into 0."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4])
        weights = v1.placeholder(tf.float32, [4, 4])
        score = tf.identity(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), weights[0])), name="score")
        found = session.run(score, {x: np.full((1, 4), np.nan, np.float32), weights: np.ones((4, 4), np.float32)})
    return not bool(np.isnan(found).any())

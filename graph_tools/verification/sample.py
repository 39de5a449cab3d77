# SPDX-License-Identifier: Apache-2.0
"""Take some keys of a table of any size."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from graph_tools.tensors import Array, TensorSource

#: Number of keys to take from each table.
SAMPLE = 4096
_BLOCK, _BLOCKS = 1 << 18, 64


def sample(tensor: TensorSource) -> Array:
    """Return keys from the ends of up to 64 blocks, so that a table larger than memory is not read as a whole."""
    blocks = max(1, min(_BLOCKS, math.ceil(math.prod(tensor.shape) / _BLOCK)))
    each = max(1, SAMPLE // blocks // 2)
    taken: list[Array] = []
    for chunk in islice(tensor.chunks(_BLOCK), blocks):
        block = chunk.ravel()
        taken += [block] if len(block) <= 2 * each else [block[:each], block[-each:]]
    return np.concatenate(taken) if taken else np.empty(0, tensor.dtype)

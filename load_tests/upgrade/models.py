# SPDX-License-Identifier: Apache-2.0
"""Export the models of upgrades, each with a table.

    python -m load_tests.upgrade.models OUT_DIR       # needs tensorflow or tensorflow-cpu 2.21

Input ids int64 [batch, 3], from 0 to 9; output y float32 [batch, 1] = scale * (the sum of the ids), where the scale is
the number of the version: the version that served a request determines the right response.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from load_tests.upgrade.clients import IDS, WIDTH

#: Numbers of the versions.
VERSIONS = range(1, 9)
_DIM = 4


class _Model(tf.Module):  # type: ignore[misc]
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        # A row is a quarter of its id in each column.
        self.table = tf.Variable(tf.range(float(IDS))[:, None] * tf.fill([1, _DIM], 1.0 / _DIM), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.int64, name="ids")])  # type: ignore[untyped-decorator]
    def serve(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Score rows."""
        pooled = tf.reduce_sum(tf.gather(self.table, ids), axis=1)
        return {"y": self.scale * tf.reduce_sum(pooled, axis=1, keepdims=True)}


def main(out: Path) -> None:
    """Write all versions."""
    for number in VERSIONS:
        model = _Model(float(number))
        tf.saved_model.save(model, str(out / str(number)), signatures={"serving_default": model.serve})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

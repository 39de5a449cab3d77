# SPDX-License-Identifier: Apache-2.0
"""Export W2 with its batch fixed, and what it answers; the compiler takes no unknown dimension.

    python -m load_tests.aot.export_fixed MODEL TARGET ROWS [OP_LIBRARY]

Beside the model, `inputs.bin` holds for each request `dense`, then C1 to C26, as they lie in memory, and `answers.bin`
the scores of stock TensorFlow, float32.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from load_tests.request_files import random_inputs

__all__ = ["NAMES", "export"]

NAMES = ["dense", *(f"C{number}" for number in range(1, 27))]
REQUESTS = 64


def export(model: Path, target: Path, rows: int) -> None:
    """Write the model, the inputs and the answers."""
    loaded = tf.saved_model.load(str(model))
    signature = loaded.signatures["serving_default"]
    specs = {"dense": tf.TensorSpec([rows, 13], tf.float32, name="dense")}
    specs |= {name: tf.TensorSpec([rows], tf.int64, name=name) for name in NAMES[1:]}

    @tf.function  # type: ignore[untyped-decorator]
    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"prob": signature(**inputs)["prob"]}

    module = tf.Module()
    module.loaded = loaded
    fixed = serve.get_concrete_function(**specs)
    tf.saved_model.save(module, str(target), signatures={"serving_default": fixed})
    rng = np.random.default_rng(rows)
    with (target / "inputs.bin").open("wb") as inputs, (target / "answers.bin").open("wb") as answers:
        for _ in range(REQUESTS):
            request = random_inputs("W2", rows, rng)
            inputs.write(b"".join(np.ascontiguousarray(request[name]).tobytes() for name in NAMES))
            scores = fixed(**{name: tf.constant(request[name]) for name in NAMES})["prob"].numpy()
            answers.write(np.ascontiguousarray(scores, "<f4").tobytes())


if __name__ == "__main__":
    if len(sys.argv) > 4:
        tf.load_op_library(sys.argv[4])
    export(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))

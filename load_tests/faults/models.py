# SPDX-License-Identifier: Apache-2.0
"""Export the models of the fault tests: good ones, and one for each kind of bad version.

    python -m load_tests.faults.models OUT_DIR       # needs tensorflow or tensorflow-cpu 2.21

Input x float32 [batch, 3]; output y float32 [batch, 1] = scale * (x0 + x1 + x2), where the scale is the number of the
version: the version that served a request determines the right response.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from load_tests.faults.clients import FEATURES, VERSIONS, WIDTH

Spec = tf.TensorSpec([None, WIDTH], tf.float32, name="x")


def _save(folder: Path, serve: Callable[[tf.Tensor], dict[str, tf.Tensor]]) -> None:
    module = tf.Module()
    module.serve = tf.function(serve, input_signature=[Spec])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})


def _score(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x, axis=1, keepdims=True)


def good(scale: float) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return a model that works."""
    return lambda x: {"y": _score(x) * tf.constant(scale)}


def aborts(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """End the process that runs the model."""
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="a version that aborts", exit_without_error=False)]):
        return {"y": _score(x)}


def hangs(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Never end."""
    (_, total) = tf.while_loop(
        lambda i, _: i >= 0, lambda i, total: (tf.bitwise.bitwise_and(i + 1, 0xFFFF), total + 1.0), (0, 0.0)
    )
    return {"y": _score(x) + 0.0 * total}


def eats_memory(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Allocate 8 GB in pieces of 64 MB, and keep it."""
    zero = 0.0 * tf.reduce_sum(x)
    parts = [tf.fill([16 * 1024 * 1024], zero + float(number)) for number in range(128)]
    # All pieces exist before the first is freed.
    with tf.control_dependencies(parts):
        largest = [tf.reduce_max(part) for part in parts]
    return {"y": _score(x) + 0.0 * tf.add_n(largest)}


def many_inputs(folder: Path) -> None:
    """Write a model with as many float inputs as a click model has: y = the sum of their first columns."""
    names = [f"f{number}" for number in range(FEATURES)]
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name=name) for name in names])  # type: ignore[untyped-decorator]
    def serve(*columns: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.add_n([column[:, :1] for column in columns])}

    module.serve = serve
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})


def main(out: Path) -> None:
    """Write all of them."""
    for number in VERSIONS:
        _save(out / str(number), good(float(number)))
    for bad in (aborts, hangs, eats_memory):
        _save(out / bad.__name__, bad)
    many_inputs(out / many_inputs.__name__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

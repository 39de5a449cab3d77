# SPDX-License-Identifier: Apache-2.0
"""Export models that end the process that loads them, or that never become ready."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from helpers.models.quiet_tensorflow import tensorflow


def build_deadly(path: Path, kind: str) -> Path:
    """Export x float32 [batch] -> y float32 [batch], whose first run, the warm-up, fails badly.

    `abort` ends the process by an op with this purpose, `memory` allocates more than any machine has, in pieces,
    `endless` computes forever, and `waiting` waits forever without computing.
    """
    tf = tensorflow()
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": _EFFECTS[kind](tf, x)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def _abort(tf: Any, x: Any) -> Any:
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="as the test wants it", exit_without_error=False)]):
        return tf.identity(x)


def _memory(tf: Any, x: Any) -> Any:
    # Each iteration keeps its result: 64 MiB more.
    pieces = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)

    def more(i: Any, pieces: Any) -> Any:
        return i + 1, pieces.write(i, tf.fill([16 * 1024 * 1024], tf.cast(i, tf.float32) + x[0]))

    _, pieces = tf.while_loop(lambda i, _: i < 1_000_000, more, [0, pieces])
    return x + pieces.read(0)[0]


def _endless(tf: Any, x: Any) -> Any:
    return tf.while_loop(lambda _: True, lambda y: [tf.sin(y) + 1.0], [x])[0]


def _waiting(tf: Any, x: Any) -> Any:
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[]])
    return x + tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32])[0]


_EFFECTS = {"abort": _abort, "memory": _memory, "endless": _endless, "waiting": _waiting}


if __name__ == "__main__":
    build_deadly(Path(sys.argv[1]), sys.argv[2])

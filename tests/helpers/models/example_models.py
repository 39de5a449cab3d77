# SPDX-License-Identifier: Apache-2.0
"""Export a model of tf.Example, for Classify, Regress and MultiInference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CLASSES = (b"no", b"yes")


def build_examples(path: str | Path) -> Path:
    """Signatures `serving_default` and `classify` (x -> CLASSES with scores 1 - x and x) and `regress` (x -> 2 x).

    `x` is a float feature of one value.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="examples")
        x = v1.io.parse_example(examples, {"x": v1.FixedLenFeature([1], tf.float32)})["x"]
        scores = tf.concat([1.0 - x, x], axis=1)
        classes = tf.tile(tf.constant([list(CLASSES)]), [tf.shape(x)[0], 1])
        signatures: dict[str, Any] = {
            "classify": v1.saved_model.classification_signature_def(examples, classes, scores),
            "regress": v1.saved_model.regression_signature_def(examples, tf.reshape(2.0 * x, [-1])),
        }
        signatures["serving_default"] = signatures["classify"]
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, [v1.saved_model.tag_constants.SERVING], signatures)
        builder.save()
    return Path(path)

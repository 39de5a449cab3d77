# SPDX-License-Identifier: Apache-2.0
"""Export models that take tf.Examples, as TF 1 estimators export them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.models.quiet_tensorflow import tensorflow


def scores(x: np.ndarray) -> np.ndarray:
    """Return a classifier's outputs: [batch] to [batch, 2], for the labels "low" and "high"."""
    high = 1 / (1 + np.exp(-x.astype(np.float32)))
    return np.stack([1 - high, high], axis=1)


def build_classifier(path: Path) -> Path:
    """Export a model with the features x (float, default 0) and bias (float, default 0).

    Signatures: serving_default (classify: classes and scores), scores_only and classes_only (classify), regress
    (2 * (x + bias), [batch, 1]), and predict (the serialized examples -> "sum").
    """
    tf = tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        feature = v1.FixedLenFeature([1], tf.float32, [0.0])
        parsed = v1.parse_example(serialized, {"x": feature, "bias": feature})
        total = parsed["x"] + parsed["bias"]
        both = tf.concat([1 - tf.sigmoid(total), tf.sigmoid(total)], axis=1)
        labels = tf.tile(tf.constant([["low", "high"]]), [tf.shape(serialized)[0], 1])
        utils = v1.saved_model.signature_def_utils
        signatures = {
            "serving_default": utils.classification_signature_def(serialized, labels, both),
            "scores_only": utils.classification_signature_def(serialized, None, both),
            "classes_only": utils.classification_signature_def(serialized, labels, None),
            "regress": utils.regression_signature_def(serialized, 2 * total),
            "predict": utils.predict_signature_def({"examples": serialized}, {"sum": total}),
        }
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return path

# SPDX-License-Identifier: Apache-2.0
"""Build pairs of models that differ in one property, for the tests of verify and diff."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("apple", "pear", "plum", "müsli", "quince")


def build_lookup(
    path: Path,
    *,
    words: Sequence[str] = WORDS,
    rows: np.ndarray | None = None,
    absent: int | None = None,
) -> Path:
    """item string [batch] -> score float32 [batch, 2]: a hash table, and a row for each word and one for all others.

    Parameters
    ----------
    rows : ndarray [words + 1, 2] float32, optional
    absent : int, optional
        Row for absent words; by default the last.
    """
    import tensorflow as tf

    values = np.arange(2.0 * (len(words) + 1), dtype=np.float32).reshape(-1, 2) / 8 if rows is None else rows
    module = tf.Module()
    module.rows = tf.Variable(values, name="rows")
    pairs = tf.lookup.KeyValueTensorInitializer(list(words), tf.range(len(words), dtype=tf.int64))
    module.table = tf.lookup.StaticHashTable(pairs, len(words) if absent is None else absent)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="item")])
    def serve(item: Any) -> dict[str, Any]:
        return {"score": tf.gather(module.rows, module.table.lookup(item))}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def build_bags(path: Path, *, scale: float = 1.0) -> Path:
    """Build a TF 1 graph over a sparse input: ids int64 (indices, values, dense_shape), price float32 [batch] -> score.

    Bags of ids are averaged, and empty ones give zeros, as with `safe_embedding_lookup_sparse`.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        ids = v1.sparse_placeholder(v1.int64, name="ids")
        price = v1.placeholder(v1.float32, [None], name="price")
        weights = scale * np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
        table = v1.get_variable("table", initializer=weights, use_resource=True)
        bags = tf.nn.safe_embedding_lookup_sparse(table, ids, combiner="mean")
        score = v1.add(tf.reduce_sum(bags, 1), price, name="score")
        session.run(v1.global_variables_initializer())
        inputs = {"a": ids.indices, "b": ids.values, "c": ids.dense_shape, "price": price}
        v1.saved_model.simple_save(session, str(path), inputs=inputs, outputs={"score": score})
    return path


def build_examples(path: Path, *, factor: float = 2.0) -> Path:
    """Serialized `tf.Example` messages with price float32 [1] and tags of strings -> score float32 [batch]."""
    import tensorflow as tf

    module = tf.Module()
    module.factor = tf.Variable(factor, name="factor")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        features = {"price": tf.io.FixedLenFeature([1], tf.float32), "tags": tf.io.VarLenFeature(tf.string)}
        parsed = tf.io.parse_example(examples, features)
        count = tf.sparse.reduce_sum(
            tf.sparse.map_values(lambda tags: tf.ones_like(tags, tf.float32), parsed["tags"]), 1
        )
        return {"score": parsed["price"][:, 0] * module.factor + count}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path

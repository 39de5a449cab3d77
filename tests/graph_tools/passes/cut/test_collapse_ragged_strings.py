# SPDX-License-Identifier: Apache-2.0
"""Lists in one string, split and looked up, need no ragged tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.passes.cut.collapse_ragged_strings import CollapseRaggedStrings
from graph_tools.passes.cut.collapse_safe_embedding_lookup import CollapseSafeEmbeddingLookup
from helpers.models.idiom_models import assert_same, export_function, ops, passed, table

TEXTS: list[list[bytes]] = [
    [b"Action|Drama", b"", b"Drama"],
    [b"", b""],
    [],
    ["żółw|x|x".encode(), b"\xff\x00||Comedy", b"|", b"nobody knows|Action"],
]
REQUESTS = [{"text": np.array(texts, object), "user": np.array([b"u%d" % i for i in range(len(texts))], object)}
            for texts in TEXTS]  # fmt: skip


def export(path: Path, values: Callable[[Any, Any], Any], **held: Any) -> Path:
    """A list in a string: `values(ragged words, users)` makes the ragged ids that are looked up in 40 rows."""
    import tensorflow as tf

    weights = tf.Variable(table(40, 6))

    def serve(text: tf.Tensor, user: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = values(tf.strings.split(text, "|"), user)
        return {"rows": tf.nn.safe_embedding_lookup_sparse(weights, ids.to_sparse(), combiner="mean")}

    specs = [tf.TensorSpec([None], tf.string, name="text"), tf.TensorSpec([None], tf.string, name="user")]
    return export_function(path, serve, specs, weights=weights, **held)


def hashed(words: Any, _: Any) -> Any:
    import tensorflow as tf

    return tf.ragged.map_flat_values(lambda word: tf.strings.to_hash_bucket_fast(word, 40), words)


def crossed(words: Any, user: Any) -> Any:
    import tensorflow as tf

    spread = tf.gather(user, words.value_rowids())
    return hashed(words.with_flat_values(tf.strings.join([spread, words.flat_values], "_")), user)


def test_a_hashed_list_is_looked_up_as_it_was_split(tmp_path: Path) -> None:
    source = export(tmp_path / "in", hashed)
    model, (first, second) = passed(source, CollapseRaggedStrings(), CollapseSafeEmbeddingLookup())
    assert first.applied == second.applied == 1
    assert not first.refused
    assert not second.refused
    assert set(ops(model)) <= {
        "StringSplitV2", "StringToHashBucketFast", "StridedSlice", "Shape", "ReadVariableOp", "Identity", "IdentityN",
        "SparseSegmentMeanWithNumSegments", "NoOp",
    }  # fmt: skip
    assert_same(source, model, tmp_path / "out", REQUESTS)
    assert CollapseRaggedStrings().apply(model).applied == 0


def test_a_cross_with_a_list_is_looked_up_as_it_was_split(tmp_path: Path) -> None:
    source = export(tmp_path / "in", crossed)
    model, (first, second) = passed(source, CollapseRaggedStrings(), CollapseSafeEmbeddingLookup())
    assert first.applied == second.applied == 1
    assert not {"RaggedTensorToSparse", "DenseBincount", "SparseReshape", "Where"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS)


def test_ids_from_a_vocabulary_need_no_check_for_negative_ones(tmp_path: Path) -> None:
    import tensorflow as tf

    file = tmp_path / "words.txt"
    file.write_bytes(b"Action\nDrama\nComedy\n")
    text = tf.lookup.TextFileInitializer(
        str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    vocabulary = tf.lookup.StaticVocabularyTable(text, num_oov_buckets=1)

    def found(words: Any, _: Any) -> Any:
        return tf.ragged.map_flat_values(vocabulary.lookup, words)

    source = export(tmp_path / "in", found, vocabulary=vocabulary)
    model, (first, second) = passed(source, CollapseRaggedStrings(), CollapseSafeEmbeddingLookup())
    assert first.applied == second.applied == 1
    # A number is a line's or one more: never negative.
    assert not {"Where", "GreaterEqual"} & set(ops(model))
    assert_same(source, model, tmp_path / "out", REQUESTS)


def test_a_ragged_input_stays_and_its_lookup_is_short(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(table(40, 6))

    def serve(values: tf.Tensor, splits: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return {"rows": tf.nn.safe_embedding_lookup_sparse(weights, ids.to_sparse(), combiner="sum")}

    specs = [tf.TensorSpec([None], tf.int64, name="values"), tf.TensorSpec([None], tf.int64, name="splits")]
    source = export_function(tmp_path / "in", serve, specs, weights=weights)
    model, (first, second) = passed(source, CollapseRaggedStrings(), CollapseSafeEmbeddingLookup())
    assert first.applied == 0
    assert second.applied == 1
    assert not {"SparseReshape", "SparseFillEmptyRows", "Select", "Tile"} & set(ops(model))
    feeds = [
        {"values": np.array([1, -2, 39, 1]), "splits": np.array([0, 2, 2, 4])},
        {"values": np.array([], np.int64), "splits": np.array([0, 0])},
        {"values": np.array([], np.int64), "splits": np.array([0])},
    ]
    assert_same(source, model, tmp_path / "out", feeds)


def test_lists_that_were_changed_after_the_split_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    def shorter(words: Any, user: Any) -> Any:
        return hashed(tf.ragged.boolean_mask(words, tf.strings.length(words) > 5), user)

    def reversed_counts(words: Any, user: Any) -> Any:
        ids = hashed(words, user)
        counts = tf.reverse(words.row_lengths(), [0])
        return tf.RaggedTensor.from_row_lengths(ids.flat_values, counts, validate=False)

    for number, change in enumerate((shorter, reversed_counts)):
        source = export(tmp_path / f"in_{number}", change)
        model, (result, _) = passed(source, CollapseRaggedStrings(), CollapseSafeEmbeddingLookup())
        assert result.applied == 0
        assert_same(source, model, tmp_path / f"out_{number}", REQUESTS)


def test_two_ragged_axes_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(text: tf.Tensor) -> dict[str, tf.Tensor]:
        letters = tf.strings.unicode_split(tf.strings.split(text, "|"), "UTF-8")
        return {"letters": tf.sparse.to_dense(letters.to_sparse(), default_value="")}

    source = export_function(tmp_path / "in", serve, [tf.TensorSpec([None], tf.string, name="text")])
    model, (result,) = passed(source, CollapseRaggedStrings())
    assert [reason for _, reason in result.refused] == ["2 ragged axes, expected one"]
    assert_same(source, model, tmp_path / "out", [{"text": np.array([b"ab|c", b"", b"|d"], object)}])

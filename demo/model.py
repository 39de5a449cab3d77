# SPDX-License-Identifier: Apache-2.0
"""Define a Wide & Deep model over string features, with every lookup in the graph.

The exported graph resembles click models in production. Its inputs are strings; vocabularies (assets of the SavedModel)
and hash buckets convert them to row numbers; a string with a list of genres is split, looked up and averaged.

Source
------
H.-T. Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from demo.movielens import FEATURES

Tensor = Any

DIMS = {"user_id": 16, "age_band": 4, "gender": 4, "occupation": 8, "item_id": 16, "genres": 8}
LISTS = ("genres",)
SEPARATOR = "|"
CROSSES = {
    ("user_id", "genres"): 30_000,
    ("occupation", "genres"): 1_000,
    ("age_band", "item_id"): 20_000,
    ("gender", "item_id"): 8_000,
}
HIDDEN = (256, 128, 64)


class WideDeep(tf.Module):  # type: ignore[misc]
    """Compute the probability of a click: sigmoid(wide + deep).

    The wide part is a weight per feature value and per cross of two features, the deep part a ReLU tower over the
    concatenated embeddings. Values that are in no vocabulary share an additional row.
    """

    def __init__(self, vocabularies: Mapping[str, list[bytes]], folder: Path, prior: float, seed: int) -> None:
        """Create an untrained model.

        Parameters
        ----------
        vocabularies : mapping of str to list of bytes
            The values of each feature; for a list feature, the values of its elements.
        folder : Path
            Folder for the vocabularies, one file each; they must stay until the model has been exported.
        prior : float
            Share of clicks, which the untrained model returns.
        seed : int
            Seed of the initial weights.
        """
        super().__init__(name="wide_deep")
        random = tf.random.Generator.from_seed(seed)
        self.tables = {name: _table(folder / f"{name}.txt", vocabularies[name]) for name in FEATURES}
        self.embeddings = {
            name: tf.Variable(random.normal([len(vocabularies[name]) + 1, dim], stddev=0.05), name=f"{name}_embedding")
            for name, dim in DIMS.items()
        }
        self.linear = {
            name: tf.Variable(tf.zeros([len(vocabularies[name]) + 1, 1]), name=f"{name}_weights") for name in FEATURES
        }
        self.crosses = {
            _cross_name(pair): tf.Variable(tf.zeros([buckets, 1]), name=f"{_cross_name(pair)}_weights")
            for pair, buckets in CROSSES.items()
        }
        self.bias = tf.Variable(tf.math.log(prior / (1.0 - prior)), name="bias")
        self.kernels, self.biases = [], []
        width = sum(DIMS.values())
        for layer, units in enumerate((*HIDDEN, 1)):
            kernel = random.normal([width, units], stddev=(2.0 / width) ** 0.5)
            self.kernels.append(tf.Variable(kernel, name=f"kernel_{layer}"))
            self.biases.append(tf.Variable(tf.zeros([units]), name=f"bias_{layer}"))
            width = units

    def logits(self, features: Mapping[str, Tensor], dropout: float = 0.0) -> Tensor:
        """Return log-odds [batch] float32 for features [batch] string; `dropout` is the share of inputs set to zero."""
        values = {
            name: tf.strings.split(features[name], SEPARATOR) if name in LISTS else features[name] for name in FEATURES
        }
        ids = {name: _map_values(self.tables[name].lookup, value) for name, value in values.items()}
        deep = tf.concat([_embed(self.embeddings[name], ids[name], "mean") for name in FEATURES], axis=1)
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            if dropout:
                deep = tf.nn.dropout(deep, dropout)
            deep = tf.nn.bias_add(tf.matmul(deep, kernel), bias)
            if layer < len(HIDDEN):
                deep = tf.nn.relu(deep)
        wide = [_embed(self.linear[name], ids[name], "mean") for name in FEATURES]
        for pair, buckets in CROSSES.items():
            crossed = _cross(values[pair[0]], values[pair[1]])
            bucket = _map_values(lambda text, n=buckets: tf.strings.to_hash_bucket_fast(text, n), crossed)
            wide.append(_embed(self.crosses[_cross_name(pair)], bucket, "mean"))
        return tf.squeeze(deep + tf.add_n(wide), axis=1) + self.bias


def export(model: WideDeep, folder: Path) -> None:
    """Write a SavedModel: `serving_default` takes each feature as [batch] string and returns `probability` [batch]."""
    specs = {name: tf.TensorSpec([None], tf.string, name=name) for name in FEATURES}

    @tf.function(input_signature=[specs])  # type: ignore[untyped-decorator]
    def serve(features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"probability": tf.sigmoid(model.logits(features))}

    tf.saved_model.save(model, str(folder), signatures={"serving_default": serve})


def _table(file: Path, values: list[bytes]) -> Any:
    """Create a lookup of `values` -> 0, 1, ...; any other value gets the number after the last."""
    file.write_bytes(b"\n".join(values) + b"\n")
    initializer = tf.lookup.TextFileInitializer(
        str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=1)


def _map_values(function: Any, value: Tensor) -> Tensor:
    return tf.ragged.map_flat_values(function, value) if isinstance(value, tf.RaggedTensor) else function(value)


def _embed(weights: Any, ids: Tensor, combiner: str) -> Tensor:
    """Look up [batch, dim]: the row of an id, or the mean of the rows of a list of ids."""
    if isinstance(ids, tf.RaggedTensor):
        return tf.nn.safe_embedding_lookup_sparse(weights, ids.to_sparse(), combiner=combiner)
    return tf.nn.embedding_lookup(weights, ids)


def _cross(left: Tensor, right: Tensor) -> Tensor:
    """Join each value of `left` [batch] with the value, or with every value of the list, in `right`."""
    if not isinstance(right, tf.RaggedTensor):
        return tf.strings.join([left, right], "\x01")
    spread = tf.gather(left, right.value_rowids())
    return right.with_flat_values(tf.strings.join([spread, right.flat_values], "\x01"))


def _cross_name(pair: tuple[str, str]) -> str:
    return "_x_".join(pair)

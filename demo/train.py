# SPDX-License-Identifier: Apache-2.0
"""Train the click model and keep its SavedModel in a cache."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from demo import model as model_module
from demo import movielens
from demo.model import LISTS, SEPARATOR, WideDeep, export
from demo.movielens import FEATURES, Rows, split

EPOCHS = 6
#: Epochs of the variant, which is therefore another model for the same requests.
VARIANT_EPOCHS = 3
BATCH = 512
LEARNING_RATE = 2e-3
DROPOUT = 0.3
SEED = 1

#: Called with the number of completed batches and the total number.
Progress = Callable[[int, int], None]


def cache_key(wheel: Path) -> str:
    """Return a text that changes if the code of the model or its training, the data or TensorFlow change."""
    digest = hashlib.sha256(tf.__version__.encode())
    for source in (Path(__file__), Path(model_module.__file__), Path(movielens.__file__), wheel):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def auc(clicks: NDArray[np.float32], scores: NDArray[np.float32]) -> float:
    """Return the area under the ROC curve: the chance that a click [rows] scores above a non-click; a tie is half."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    rank = (last - (count - 1) / 2.0)[place]
    positives = float(clicks.sum())
    negatives = len(clicks) - positives
    if not positives or not negatives:
        raise ValueError("clicks: found one class only, expected clicks and non-clicks")
    return float((rank[clicks > 0.5].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def vocabularies(rows: Rows) -> dict[str, list[bytes]]:
    """Return the sorted values of each feature; lists are split into their elements."""
    found = {}
    for name in FEATURES:
        values = set(rows.features[name].tolist())
        if name in LISTS:
            values = {part for value in values for part in value.split(SEPARATOR.encode())}
        found[name] = sorted(values)
    return found


def train(rows: Rows, folder: Path, progress: Progress, epochs: int = EPOCHS) -> WideDeep:
    """Train a model on `rows` with Adam and cross entropy.

    Parameters
    ----------
    rows : Rows
        Training data.
    folder : Path
        Folder for the vocabularies; they must stay until the model has been exported.
    progress : callable
        Called after every batch.
    epochs : int
        Passes over the rows.
    """
    tf.random.set_seed(SEED)
    model = WideDeep(vocabularies(rows), folder, float(rows.clicks.mean()), SEED)
    optimizer = tf.keras.optimizers.Adam(LEARNING_RATE)
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(features: dict[str, Any], clicks: Any) -> None:
        with tf.GradientTape() as tape:
            logits = model.logits(features, DROPOUT)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=clicks, logits=logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    dataset = tf.data.Dataset.from_tensor_slices((dict(rows.features), rows.clicks))
    dataset = dataset.shuffle(len(rows), seed=SEED).batch(BATCH, drop_remainder=True).repeat(epochs).prefetch(4)
    batches = epochs * (len(rows) // BATCH)
    for done, (features, clicks) in enumerate(dataset, start=1):
        step(features, clicks)
        progress(done, batches)
    return model


def reference_scores(path: Path, rows: Rows, progress: Progress, chunk: int = 2000) -> NDArray[np.float32]:
    """Return TensorFlow's scores [rows] float32 for the SavedModel in `path`."""
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    parts = []
    for start in range(0, len(rows), chunk):
        part = {name: tf.constant(column[start : start + chunk]) for name, column in rows.features.items()}
        parts.append(serve(**part)["probability"].numpy())
        progress(min(start + chunk, len(rows)), len(rows))
    return np.concatenate(parts)


def model_folder(cache: Path, wheel: Path) -> Path:
    """Return the folder of the SavedModel for this code and the data in `wheel`; it exists after training."""
    return cache / f"model-{cache_key(wheel)}" / "1"


def variant_folder(cache: Path, wheel: Path) -> Path:
    """Return the same folder for the variant, which is trained for `VARIANT_EPOCHS`."""
    return cache / f"variant-{cache_key(wheel)}" / "2"


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Keep other processes from training into the same cache while the block runs."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "training.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def train_into(
    folder: Path, rows: Rows, on_train: Progress, on_export: Callable[[], None], epochs: int = EPOCHS
) -> None:
    """Train on all `rows` except the held-out ones and write the SavedModel to `folder`.

    Parameters
    ----------
    folder : Path
        Result of `model_folder` or `variant_folder`.
    rows : Rows
        The whole data set.
    on_train, on_export : callable
        Called after every batch, and when training has ended and the export begins.
    epochs : int
        Passes over the rows.
    """
    # Written to a temporary folder and renamed, so that an interrupted run leaves no incomplete model.
    whole = folder.parent
    part = whole.with_suffix(".part")
    for leftover in (part, whole):
        shutil.rmtree(leftover, ignore_errors=True)
    vocabulary_folder = part / "vocabularies"
    vocabulary_folder.mkdir(parents=True)
    model = train(rows.take(split(len(rows))[0]), vocabulary_folder, on_train, epochs)
    on_export()
    export(model, part / folder.name)
    part.rename(whole)

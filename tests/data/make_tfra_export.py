# SPDX-License-Identifier: Apache-2.0
"""Export a tiny model with TFRA itself, and write down what it answers: `python make_tfra_export.py FOLDER`.

To be run in an environment of its own, with tensorflow 2.16.2, tensorflow-recommenders-addons 0.8.1 and tf-keras
2.16.0: TFRA's libraries fit one version of TensorFlow. FOLDER gets one SavedModel of each kind, zipped, and
`requests.npz`:

    inference   after enable_inference_mode()
    training    with ShadowVariables and the slots of an optimizer
    files       rows in files of TFRA's FileSystemSaver
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("inference", "training", "files")

USER_KEYS = np.arange(10, dtype=np.int64) * 7
ITEM_KEYS = np.concatenate([np.arange(-5, 15), [2**40, -(2**62)]]).astype(np.int64)

# The last of each is absent everywhere; several are absent in some.
REQUESTS = (
    ([0, 7, 63], [-5, 14, 2**40]),
    ([1], [15]),
    ([7, 7, -7, 2**62, 0, 8, 14], [3, 3, -(2**62), -6, 99, 0, 15]),
)


def draw() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of both tables and the dense weights."""
    random = np.random.default_rng(0)
    return tuple(random.normal(size=size).astype(np.float32) for size in ((10, 4), (len(ITEM_KEYS), 3), (7, 1)))


def export(kind: str, folder: Path) -> None:
    """Build the model, export it, and write `requests.npz` from its own answers."""
    os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import tensorflow as tf
    import tensorflow_recommenders_addons.dynamic_embedding as de

    if kind != "training":
        de.enable_inference_mode()
    options: dict[str, Any] = {"key_dtype": tf.int64}
    if kind == "files":
        options["kv_creator"] = de.CuckooHashTableCreator(saver=de.FileSystemSaver(proc_size=1, proc_rank=0))
    user_rows, item_rows, weights = draw()
    module = tf.Module()
    module.user = de.get_variable(
        "user", dim=4, initializer=0.25, devices=["/CPU:0"], bp_v2=kind == "training", **options
    )
    module.item = de.get_variable("item/emb", dim=3, initializer=0.0, devices=["/CPU:0"] * 2, **options)
    module.w = tf.Variable(weights, name="w")
    if kind == "training":
        module.user_shadow = de.shadow_ops.ShadowVariable(module.user, name="user_shadow")
        module.item_shadow = de.shadow_ops.ShadowVariable(module.item, name="item_shadow")
        both = (module.user_shadow, module.item_shadow)
        module.helpers = [one for shadow in both for one in (shadow.ids, shadow.exists)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name=name) for name in ("user", "item")])
    def serve(user: Any, item: Any) -> dict[str, Any]:
        if kind == "training":
            found = [de.shadow_ops.embedding_lookup(one, ids) for one, ids in zip(both, (user, item), strict=True)]
        else:
            found = [de.embedding_lookup(module.user, user, name="u"), de.embedding_lookup(module.item, item, name="i")]
        rows = tf.concat(found, 1)
        return {"rows": rows, "score": tf.sigmoid(tf.matmul(rows, module.w))}

    module.serve = serve
    if kind == "training":
        module.optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(1e-3))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(serve(tf.constant([0, 7], tf.int64), tf.constant([-5, 14], tf.int64))["score"])
        variables = [module.w, *both]
        module.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        module.w.assign(weights)
    module.user.upsert(tf.constant(USER_KEYS), tf.constant(user_rows))
    module.item.upsert(tf.constant(ITEM_KEYS), tf.constant(item_rows))
    allowed = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
    with tempfile.TemporaryDirectory() as place:
        tf.saved_model.save(module, place, signatures={"serving_default": serve}, options=allowed)
        shutil.make_archive(str(folder / kind), "zip", place)
    answers = {"count": np.array(len(REQUESTS))}
    for number, (user, item) in enumerate(REQUESTS):
        feeds = {"user": np.array(user, np.int64), "item": np.array(item, np.int64)}
        found = serve(*(tf.constant(feed) for feed in feeds.values()))
        for key, value in (feeds | {key: value.numpy() for key, value in found.items()}).items():
            answers[f"{number}/{key}"] = value
    requests = folder / "requests.npz"
    if requests.is_file():
        with np.load(requests) as before:
            for key, value in answers.items():
                np.testing.assert_array_equal(before[key], value, err_msg=f"{kind}: {key}")
    np.savez(requests, **answers)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        export(sys.argv[2], target)
    else:
        for each in KINDS:
            subprocess.run([sys.executable, __file__, str(target), each], check=True)

# SPDX-License-Identifier: Apache-2.0
"""Export models with graphs that are loaded in different ways: control flow, tables, no variables at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from helpers.models.quiet_tensorflow import tensorflow

WORDS = ("apple", "pear", "plum")


def build_tf1(path: Path, body: Callable[[Any, Any, Any], Any], dtype: str = "float32", v1_flow: bool = False) -> Path:
    """x [batch] of `dtype` -> y = body(v1, x, w), with a variable w = 2; `v1_flow` makes Switch, Merge, Enter, Exit."""
    v1 = tensorflow().compat.v1
    if v1_flow:
        v1.disable_control_flow_v2()
    try:
        with v1.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(dtype, [None], name="x")
            w = v1.get_variable("w", initializer=np.float32(2.0), use_resource=True)
            y = v1.identity(body(v1, x, w), name="y")
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            v1.saved_model.simple_save(
                session, str(path), inputs={"x": x}, outputs={"y": y}, legacy_init_op=v1.tables_initializer()
            )
    finally:
        if v1_flow:
            v1.enable_control_flow_v2()
    return path


def double_until_hundred(v1: Any, x: Any, w: Any) -> Any:
    """Multiply all by w until their sum is at least 100."""
    return v1.while_loop(lambda y: v1.reduce_sum(y) < 100.0, lambda y: y * w, [x])


def negate_if_negative(v1: Any, x: Any, w: Any) -> Any:
    """Return w * x if the sum is positive, otherwise -x."""
    return v1.cond(v1.reduce_sum(x) > 0, lambda: x * w, lambda: -x)


def look_up_in_asset(folder: Path) -> Callable[[Any, Any, Any], Any]:
    """Look up words in a vocabulary file, which becomes an asset; its table has no shared_name."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "words.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n", encoding="utf-8")

    def body(v1: Any, x: Any, w: Any) -> Any:
        lookup = tensorflow().lookup
        initializer = lookup.TextFileInitializer(
            str(vocabulary), v1.string, lookup.TextFileIndex.WHOLE_LINE, v1.int64, lookup.TextFileIndex.LINE_NUMBER
        )
        table = lookup.StaticHashTable(initializer, default_value=-1)
        return v1.cast(table.lookup(x), v1.float32) * w

    return body


def build_without_variables(path: Path) -> Path:
    """x float32 [batch] -> y = x * x."""
    tf = tensorflow()
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": x * x}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def build_keras(path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """Export a Keras 3 model; return its folder, an input and Keras's output."""
    tf = tensorflow()
    keras = tf.keras
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = np.asarray(model(x))
    model.export(str(path), verbose=False)
    return path, x, expected

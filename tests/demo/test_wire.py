# SPDX-License-Identifier: Apache-2.0
"""Check that TensorFlow's protobuf classes and the hand-written messages read each other."""

import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

from demo import wire


@functools.cache
def messages() -> tuple[type, type]:
    """Answer classes for PredictRequest and PredictResponse, with the field numbers of TensorFlow Serving."""
    file = descriptor_pb2.FileDescriptorProto(name="predict_for_test.proto", package="demo_test", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor.proto")
    spec = file.message_type.add(name="ModelSpec")
    spec.field.add(name="name", number=1, type=9, label=1)
    for name, field, number in (("PredictRequest", "inputs", 2), ("PredictResponse", "outputs", 1)):
        message = file.message_type.add(name=name)
        if name == "PredictRequest":
            message.field.add(name="model_spec", number=1, type=11, label=1, type_name=".demo_test.ModelSpec")
        entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=9, label=1)
        entry.field.add(name="value", number=2, type=11, label=1, type_name=".tensorflow.TensorProto")
        message.field.add(name=field, number=number, type=11, label=3, type_name=f".demo_test.{name}.{entry.name}")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"demo_test.{name}"))
        for name in ("PredictRequest", "PredictResponse")
    )


def test_encode_request_is_read_by_protobuf() -> None:
    request_class, _ = messages()
    features = {"user_id": np.array([b"1", b"", b"943"]), "genres": np.array([b"A|B" * 100, b"C", b"\xff"])}
    request = request_class.FromString(wire.encode_request(features, "click"))
    assert request.model_spec.name == "click"
    assert set(request.inputs) == set(features)
    for name, values in features.items():
        tensor = tensor_pb2.TensorProto.FromString(request.inputs[name].SerializeToString())
        assert tf.make_ndarray(tensor).tolist() == values.tolist()


def test_encode_request_without_a_model_has_no_model_spec() -> None:
    request_class, _ = messages()
    request = request_class.FromString(wire.encode_request({"user_id": np.array([b"1"])}))
    assert not request.HasField("model_spec")


@pytest.mark.parametrize("typed", [True, False], ids=["float_val", "tensor_content"])
def test_decode_response_reads_protobuf(typed: bool) -> None:
    _, response_class = messages()
    expected = np.array([0.25, 0.5, 1e-30], np.float32)
    response = response_class()
    for name, values in (("other", expected + 1), ("probability", expected)):
        tensor = response.outputs[name]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=3)
        if typed:
            tensor.float_val.extend(values.tolist())
        else:
            tensor.tensor_content = values.tobytes()
    assert wire.decode_response(response.SerializeToString(), "probability").tolist() == expected.tolist()


def test_decode_response_names_the_available_outputs() -> None:
    _, response_class = messages()
    response = response_class()
    response.outputs["score"].dtype = 1
    with pytest.raises(ValueError, match=r"found outputs \[b'score'\], expected 'probability'"):
        wire.decode_response(response.SerializeToString(), "probability")


def test_decode_response_refuses_another_type() -> None:
    _, response_class = messages()
    response = response_class()
    response.outputs["probability"].dtype = 2
    with pytest.raises(ValueError, match="type 2, expected 1"):
        wire.decode_response(response.SerializeToString(), "probability")


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0b", b"\x80", b"\x0d\x00"])
def test_decode_response_refuses_damaged_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        wire.decode_response(data, "probability")


def test_framed_messages_round_trip(tmp_path: Path) -> None:
    sent = [b"one", b"", b"x" * 70_000]
    wire.write_framed(tmp_path / "requests", sent)
    assert wire.read_framed(tmp_path / "requests") == sent


def test_read_framed_refuses_a_cut_file(tmp_path: Path) -> None:
    wire.write_framed(tmp_path / "requests", [b"one", b"two"])
    data = (tmp_path / "requests").read_bytes()
    (tmp_path / "requests").write_bytes(data[:-1])
    with pytest.raises(ValueError, match="found 13 bytes, expected 14"):
        wire.read_framed(tmp_path / "requests")

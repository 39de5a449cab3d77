# SPDX-License-Identifier: Apache-2.0
"""Server reflection, and a request built from nothing but its descriptions."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from helpers.models.model_builders import linear_score

# Exactly these, of every host.
SERVICES = {
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
    "grpc.reflection.v1.ServerReflection",
}


def test_services_are_listed(channel: grpc.Channel) -> None:
    assert set(ProtoReflectionDescriptorDatabase(channel).get_services()) == SERVICES


def _ask_stable(channel: grpc.Channel, request: reflection_pb2.ServerReflectionRequest):
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    (answer,) = ask(iter([request]), timeout=60)
    return answer


def test_stable_version_lists_the_same_services(channel: grpc.Channel) -> None:
    answer = _ask_stable(channel, reflection_pb2.ServerReflectionRequest(list_services=""))
    assert {service.name for service in answer.list_services_response.service} == SERVICES


def test_stable_version_describes_itself(channel: grpc.Channel) -> None:
    """grpcurl and Postman find the described service, with messages of its own package."""
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="grpc.reflection.v1.ServerReflection")
    (text,) = _ask_stable(channel, asked).file_descriptor_response.file_descriptor_proto
    file = FileDescriptorProto.FromString(text)
    assert file.package == "grpc.reflection.v1"
    pool = DescriptorPool()
    pool.Add(file)
    (method,) = pool.FindServiceByName("grpc.reflection.v1.ServerReflection").methods
    assert method.input_type.full_name == "grpc.reflection.v1.ServerReflectionRequest"
    request_type, response_type = (message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type))
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=request_type.SerializeToString,
        response_deserializer=response_type.FromString,
    )
    (answer,) = ask(iter([request_type(file_containing_symbol="absent.Service")]), timeout=60)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_service_is_described(channel: grpc.Channel, service: str) -> None:
    found = DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindServiceByName(service)
    assert all(method.input_type.full_name and method.output_type.full_name for method in found.methods)


def test_descriptions_suffice_for_a_request(channel: grpc.Channel) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    method = pool.FindServiceByName("inference.GRPCInferenceService").FindMethodByName("ModelInfer")
    request_type, response_type = (message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type))
    x = np.array([[1, 2, 3]], np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "contents": {"fp32_contents": x.ravel()}}
    ask = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=request_type.SerializeToString,
        response_deserializer=response_type.FromString,
    )
    response = ask(request_type(model_name="ranking", inputs=[tensor]), timeout=60)
    # Whoever asks with typed contents is answered with them.
    assert np.allclose(response.outputs[0].contents.fp32_contents, linear_score(x).ravel())

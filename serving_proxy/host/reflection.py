# SPDX-License-Identifier: Apache-2.0
"""Server reflection: what services there are and what their messages look like, for clients that know neither.

The descriptors are in a pool of their own. TensorFlow and the clients' packages register the same names in protobuf's
default one; none of them is needed here, nor disturbed.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from serving_proxy.host.grpc_methods import SERVICES

_HEALTH = "grpc.health.v1.Health"
_ALPHA = "grpc.reflection.v1alpha.ServerReflection"
# The same messages on the wire under the name that newer clients ask for first.
_STABLE = "grpc.reflection.v1.ServerReflection"
_METHOD = "ServerReflectionInfo"


def descriptors() -> descriptor_pool.DescriptorPool:
    """Return a pool with the services of a host and all that they need."""
    written = resources.files("serving_proxy.generated").joinpath("services.binpb").read_bytes()
    files = list(descriptor_pb2.FileDescriptorSet.FromString(written).file)
    for module in (health_pb2, reflection_pb2):
        files.append(descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def add_reflection(server: Any) -> None:
    """Let a server answer what it is asked about itself."""
    servicer = ReflectionServicer((*SERVICES, _HEALTH, _ALPHA), pool=descriptors())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in (_ALPHA, _STABLE))
    )

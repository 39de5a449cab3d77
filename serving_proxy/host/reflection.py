# SPDX-License-Identifier: Apache-2.0
"""Server reflection: the services and their messages, for clients that know neither.

The descriptors are in a pool of their own. TensorFlow and the clients' packages register the same names in protobuf's
default pool, which is neither needed here nor changed.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from serving_proxy.host.grpc_methods import SERVICES

HEALTH = "grpc.health.v1.Health"
_ALPHA = "grpc.reflection.v1alpha.ServerReflection"
# The same messages under the name that newer clients request first.
_STABLE = "grpc.reflection.v1.ServerReflection"
REFLECTION = (_ALPHA, _STABLE)
_ALPHA_PACKAGE, _STABLE_PACKAGE = "grpc.reflection.v1alpha", "grpc.reflection.v1"
_METHOD = "ServerReflectionInfo"


def descriptors() -> descriptor_pool.DescriptorPool:
    """Return a pool with the services of a host and all definitions that they need."""
    written = resources.files("serving_proxy.messages").joinpath("services.binpb").read_bytes()
    files = list(descriptor_pb2.FileDescriptorSet.FromString(written).file)
    for module in (health_pb2, reflection_pb2):
        files.append(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    files.append(stable_reflection(files[-1]))
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def stable_reflection(alpha: FileDescriptorProto) -> FileDescriptorProto:
    """Return the description of v1, which differs from that of v1alpha only in the name of its package.

    The package `grpcio-reflection` contains only the older one.
    """
    stable = FileDescriptorProto()
    stable.CopyFrom(alpha)
    stable.name = alpha.name.replace("v1alpha", "v1")
    stable.package = _STABLE_PACKAGE
    old, new = f".{_ALPHA_PACKAGE}.", f".{_STABLE_PACKAGE}."
    for message in stable.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(old, new)
    for method in stable.service[0].method:
        method.input_type = method.input_type.replace(old, new)
        method.output_type = method.output_type.replace(old, new)
    return stable


def add_reflection(server: Any) -> None:
    """Add server reflection to a server."""
    servicer = ReflectionServicer((*SERVICES, HEALTH, *REFLECTION), pool=descriptors())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in REFLECTION)
    )

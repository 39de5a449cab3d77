# SPDX-License-Identifier: Apache-2.0
"""The descriptors for reflection are current and match the public packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from helpers.system.programs import run_ok
from serving_proxy.host.grpc_methods import LOAD, RELOAD, SERVICES, STREAM, UNARY, UNLOAD
from serving_proxy.host.reflection import descriptors

ROOT = Path(__file__).resolve().parents[3]
WRITTEN = ROOT / "serving_proxy" / "messages" / "services.binpb"


def test_descriptors_are_current() -> None:
    run_ok([sys.executable, ROOT / "tools" / "make_protos.py", "--check"])


def test_described_methods_and_served_methods_are_the_same() -> None:
    pool = descriptors()
    described = {f"/{name}/{method.name}" for name in SERVICES for method in pool.FindServiceByName(name).methods}
    assert described == {*UNARY, LOAD, RELOAD, STREAM, UNLOAD}


def _messages() -> Iterator[str]:
    def walk(prefix: str, messages) -> Iterator[str]:
        for message in messages:
            name = f"{prefix}.{message.name}"
            yield name
            yield from walk(name, message.nested_type)

    for file in descriptor_pb2.FileDescriptorSet.FromString(WRITTEN.read_bytes()).file:
        if not file.name.startswith("google/"):
            yield from walk(file.package, file.message_type)


def _shape(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return (field.number, field.type, field.is_repeated, kind and kind.full_name, oneof and oneof.name)


@pytest.fixture(scope="module")
def public() -> descriptor_pool.DescriptorPool:
    """The default pool, with the packages that clients use."""
    for module in ("tensorflow_serving.apis.model_service_pb2", "tensorflow_serving.apis.prediction_service_pb2"):
        importlib.import_module(module)
    importlib.import_module("tritonclient.grpc.service_pb2")

    return descriptor_pool.Default()


@pytest.mark.parametrize("name", sorted(_messages()))
def test_messages_match_the_public_definitions(public: descriptor_pool.DescriptorPool, name: str) -> None:
    ours: Descriptor = descriptors().FindMessageTypeByName(name)
    theirs: Descriptor = public.FindMessageTypeByName(name)
    for field in ours.fields:
        assert _shape(field) == _shape(theirs.fields_by_name[field.name]), field.name

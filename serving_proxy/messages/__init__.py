# SPDX-License-Identifier: Apache-2.0
"""Make the protobuf messages that the proxy reads, from the descriptors that `make proto` writes.

They are in a pool of their own: TensorFlow registers the same names in protobuf's default pool, and need not be
imported here. Fields that are not declared are kept or skipped, as protobuf does with unknown fields.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def new(name: str) -> Any:
    """Make an empty message, such as `tensorflow.serving.ModelServerConfig`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))()


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    written = resources.files("serving_proxy.messages").joinpath("messages.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(written).file:
        pool.Add(file)
    return pool

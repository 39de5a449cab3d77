# SPDX-License-Identifier: Apache-2.0
"""Make the messages of recorded requests, from the descriptors that `make proto` writes, without a serving package."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

# Name here -> name of the message. Both protocols have a `PredictRequest`.
_NAMES = {
    "PredictionLog": "tensorflow.serving.PredictionLog",
    "EasRequest": "tensorflow.eas.PredictRequest",
}


@cache
def messages() -> dict[str, Any]:
    """Return the message classes by name, from a separate descriptor pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    written = resources.files("graph_tools.verification").joinpath("messages.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(written).file:
        pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(full)) for name, full in _NAMES.items()}

# SPDX-License-Identifier: Apache-2.0
"""Read and write files of several messages, as for the options `--requests` and `--output` of hosts."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def frame(messages: Iterable[bytes]) -> bytes:
    """Concatenate messages, each after its length: the format of `--requests` and `--output`."""
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def unframe(data: bytes) -> list[bytes]:
    """Split data that `frame` has written into messages."""
    messages = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        assert len(data) >= 4 + size
        messages.append(data[4 : 4 + size])
        data = data[4 + size :]
    return messages

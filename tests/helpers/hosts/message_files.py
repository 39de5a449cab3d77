# SPDX-License-Identifier: Apache-2.0
"""Files of several messages, as the options `--requests` and `--output` of hosts have them."""

from __future__ import annotations

import struct
from collections.abc import Iterable


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

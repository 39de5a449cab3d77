# SPDX-License-Identifier: Apache-2.0
"""One request to the library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from processor.errors import InvalidArgumentError

# Keys that clients may send with a request, in gRPC's metadata and in HTTP's headers alike.
ROUTING_KEY = "x-routing-key"
PRIORITY = "x-priority"
MIN_EPOCH = "x-min-epoch"
TRACE = "traceparent"
# Only over HTTP, where the body may contain JSON followed by binary data.
HEADER_LENGTH = "inference-header-content-length"
PASSED_ON = frozenset({ROUTING_KEY, MIN_EPOCH, TRACE, HEADER_LENGTH})

_INT32_MAX = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_MOST_SHOWN = 40


class Operation(NamedTuple):
    """A method of a protocol of the library; docs/model_host.md lists them."""

    protocol: str
    method: str


@dataclass(slots=True)
class Call:
    """A request, and what is known of it in addition to its bytes.

    Attributes
    ----------
    deadline : float or None [s]
        On the clock of `time.monotonic()`.
    """

    operation: Operation
    data: bytes | bytearray
    model: str | None = None
    version: int = 0
    label: str | None = None
    metadata: dict[str, str | bytes] | None = None
    deadline: float | None = None
    priority: int = 0

    @property
    def asks_for_epoch(self) -> bool:
        """Return whether the request may have to wait for an epoch of the model."""
        return self.metadata is not None and MIN_EPOCH in self.metadata

    def take(self, key: str, value: str | bytes) -> None:
        """Store a header or metadata entry if it concerns the library.

        Raises
        ------
        InvalidArgumentError
            For an invalid priority.
        """
        if key == PRIORITY:
            self.priority = _priority(value)
        elif key in PASSED_ON:
            if self.metadata is None:
                self.metadata = {}
            self.metadata[key] = value


def shown(value: str | bytes) -> str:
    """Return a client's value in a form that is safe for messages."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return f"'{text[:_MOST_SHOWN]}'"


def _priority(value: str | bytes) -> int:
    text = (value.decode("latin-1") if isinstance(value, bytes) else value).strip()
    priority = int(text) if _INTEGER.fullmatch(text) else _INT32_MAX + 1
    if not -_INT32_MAX - 1 <= priority <= _INT32_MAX:
        raise InvalidArgumentError(f"{PRIORITY}: {shown(value)}, expected an integer of 32 bits")
    return priority

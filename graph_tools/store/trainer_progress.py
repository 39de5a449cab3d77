# SPDX-License-Identifier: Apache-2.0
"""Check how far a trainer says that it has learned: positions in streams, and the time of the newest sample."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

from graph_tools.errors import UsageError
from graph_tools.store.segment_directory import MOST_NAME_BYTES

_GREATEST = 2**64 - 1
_DAY_S = 86_400


def check_streams(streams: Mapping[str, SupportsIndex]) -> dict[str, int]:
    """Return {stream: position of the next message} with positions as `int`.

    Raises
    ------
    UsageError
        A name is not a string of 1 to 65,535 bytes, or a position not an integer from 0 to 2^64 - 1; it names the
        stream.
    """
    if not isinstance(streams, Mapping):
        raise UsageError(f"streams: {streams!r}, expected a mapping of names to positions")
    return {_name(name): _position(name, position) for name, position in streams.items()}


def _name(name: str) -> str:
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if not 1 <= size <= MOST_NAME_BYTES:
        raise UsageError(f"stream {name!r:.80}: expected a string of 1 to {MOST_NAME_BYTES} bytes")
    return name


def _position(name: str, position: Any) -> int:
    try:
        found = -1 if isinstance(position, bool) else operator.index(position)
    except TypeError:
        found = -1
    if not 0 <= found <= _GREATEST:
        raise UsageError(f"stream {name!r}: position {position!r}, expected an integer from 0 to 2^64 - 1")
    return found


def check_event_time(seconds: SupportsFloat) -> float:
    """Return the time of a sample [s since 1970] as `float`.

    Raises
    ------
    UsageError
        It is not a number, is before 1970, or more than a day in the future, as milliseconds are.
    """
    try:
        found = math.nan if isinstance(seconds, (str, bytes, bool)) else float(seconds)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise UsageError(f"event_time: {seconds!r}, expected seconds since 1970")
    if found > time.time() + _DAY_S:
        raise UsageError(
            f"event_time: {found:.0f} is more than a day in the future, expected seconds since 1970, not milliseconds"
        )
    return found

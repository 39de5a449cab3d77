# SPDX-License-Identifier: Apache-2.0
"""Compute which variant of an experiment a key belongs to, as hosts do.

This is the library's function (`processor_routing_bucket`), for logs, analyses, and clients that need the result
beforehand. This module does not need the library.

Notes
-----
bucket = (mix(fnv1a64(salt ‖ 0x00 ‖ key)) · 10000) >> 64 of the 128-bit product, where mix(h) is: h ^= h >> 33;
h *= 0xff51afd7ed558ccd; h ^= h >> 33; h *= 0xc4ceb9fe1a85ec53; h ^= h >> 33. docs/model_host.md, "Routing".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BUCKETS", "Arm", "assign", "bucket", "buckets"]

#: Buckets of a layer: weights are in hundredths of a percent.
BUCKETS = 10_000

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_OFFSET = 0xCBF2_9CE4_8422_2325
_PRIME = 0x100_0000_01B3
_FIRST = 0xFF51_AFD7_ED55_8CCD
_SECOND = 0xC4CE_B9FE_1A85_EC53

Key = bytes | str | int


@dataclass(frozen=True)
class Arm:
    """A variant that takes the buckets [offset, offset + weight) of its layer.

    Attributes
    ----------
    version : int
        Version of the model.
    offset, weight : int
        Buckets; arms of one layer do not overlap.
    """

    version: int
    offset: int
    weight: int


def _to_bytes(key: Key) -> bytes:
    if isinstance(key, bytes):
        return key
    # An integer input counts as its decimal text.
    return str(int(key)).encode() if isinstance(key, int | np.integer) else key.encode()


def _fnv(state: int, data: bytes) -> int:
    for byte in data:
        state = ((state ^ byte) * _PRIME) & _MASK
    return state


def bucket(salt: Key, key: Key) -> int:
    """Compute the bucket of a key.

    Parameters
    ----------
    salt : bytes, str or int
        Salt of the layer; hosts use the layer's name if it has none.
    key : bytes, str or int
        Routing key; text counts as UTF-8, an integer as its decimal text.

    Returns
    -------
    bucket : int
        In [0, 10000).
    """
    state = _fnv(_fnv(_OFFSET, _to_bytes(salt) + b"\0"), _to_bytes(key))
    state ^= state >> 33
    state = (state * _FIRST) & _MASK
    state ^= state >> 33
    state = (state * _SECOND) & _MASK
    state ^= state >> 33
    return (state * BUCKETS) >> 64


def assign(salt: Key, key: Key, arms: Iterable[Arm], baseline: int) -> int:
    """Return the version that serves a key while all versions are ready and nothing is paused.

    Parameters
    ----------
    salt, key : bytes, str or int
        As for `bucket`.
    arms : iterable of Arm
        Arms of the model.
    baseline : int
        Version that serves the requests that no arm selects.

    Returns
    -------
    version : int
        That of the arm with the key's bucket, else `baseline`.
    """
    number = bucket(salt, key)
    return next((arm.version for arm in arms if arm.offset <= number < arm.offset + arm.weight), baseline)


def buckets(salt: Key, keys: Sequence[Key] | npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Compute the buckets of many keys at once.

    Parameters
    ----------
    salt : bytes, str or int
        As for `bucket`.
    keys : sequence of bytes, str or int, or ndarray [keys] of integers, strings or bytes
        Routing keys. NumPy's own byte strings (dtype "S") end before their trailing zero bytes.

    Returns
    -------
    buckets : ndarray [keys] int64
        Each in [0, 10000).
    """
    matrix, lengths = _byte_matrix(keys)
    states = np.full(len(lengths), _fnv(_OFFSET, _to_bytes(salt) + b"\0"), np.uint64)
    prime = np.uint64(_PRIME)
    for column in range(matrix.shape[1]):
        active = lengths > column
        states[active] = (states[active] ^ matrix[active, column]) * prime
    shift = np.uint64(33)
    states ^= states >> shift
    states *= np.uint64(_FIRST)
    states ^= states >> shift
    states *= np.uint64(_SECOND)
    states ^= states >> shift
    # The upper half of the product with a small number, computed in halves of 64 bits.
    half, count = np.uint64(32), np.uint64(BUCKETS)
    low = (states & np.uint64(0xFFFF_FFFF)) * count
    return (((states >> half) * count + (low >> half)) >> half).astype(np.int64)


def _byte_matrix(keys: Sequence[Key] | npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of all keys as rows of one length, [keys, longest] uint8, and their own lengths [keys]."""
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iu":
        encoded = [str(key).encode() for key in keys.tolist()]
    else:
        encoded = [_to_bytes(key) for key in (keys.tolist() if isinstance(keys, np.ndarray) else keys)]
    lengths = np.fromiter((len(key) for key in encoded), np.int64, len(encoded))
    width = int(lengths.max(initial=0))
    padded = b"".join(key.ljust(width, b"\0") for key in encoded)
    return np.frombuffer(padded, np.uint8).reshape(len(encoded), width), lengths

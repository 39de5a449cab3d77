# SPDX-License-Identifier: Apache-2.0
"""Compute what models must share to use the same profile: the graph and the sizes of its weights."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cost_model.errors import ProfileError

# Field numbers of SavedModel, MetaGraphDef, GraphDef, FunctionDefLibrary, FunctionDef and NodeDef.
_META_GRAPHS, _GRAPH, _NODE, _LIBRARY, _FUNCTION, _FUNCTION_NODE, _OP = 2, 2, 1, 2, 1, 3, 2


def fingerprint(model: Path) -> str:
    """Return a fingerprint of a SavedModel's graph; other weights of the same sizes do not change it.

    It covers how often each op occurs and how many bytes the variables have. It does not cover names, because exports
    number them differently each time.

    Raises
    ------
    ProfileError
        If there is no readable SavedModel.
    """
    file = model / "saved_model.pb"
    if file.exists() and not file.is_file():
        raise ProfileError(f"{file}: not a regular file, expected a SavedModel")
    try:
        data = file.read_bytes()
        ops = Counter(_ops(data))
    except OSError as error:
        raise ProfileError(f"{file}: {error.strerror}, expected a SavedModel") from error
    except (IndexError, ValueError, UnicodeDecodeError) as error:
        raise ProfileError(f"{file}: damaged data found, expected a SavedModel") from error
    sizes = sorted(path.stat().st_size for path in (model / "variables").glob("variables.data-*"))
    return hashlib.sha256(json.dumps([sorted(ops.items()), sizes]).encode()).hexdigest()[:16]


def _ops(data: bytes) -> Iterator[str]:
    for meta in _fields(data, _META_GRAPHS):
        for graph in _fields(meta, _GRAPH):
            for node in _fields(graph, _NODE):
                yield from (op.decode() for op in _fields(node, _OP))
            for library in _fields(graph, _LIBRARY):
                for function in _fields(library, _FUNCTION):
                    for node in _fields(function, _FUNCTION_NODE):
                        yield from (op.decode() for op in _fields(node, _OP))


def _fields(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the length-delimited fields of a message that have a given number."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("a field that reaches beyond its message")
            if key >> 3 == wanted:
                yield data[at : at + size]
            at += size
        else:
            raise ValueError("an unknown wire type")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7

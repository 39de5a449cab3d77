# SPDX-License-Identifier: Apache-2.0
"""Read and write the place of a model in a timeline, and identify models by their weights."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.json_data import write_json
from graph_tools.store.segment_layout import GREATEST, HASH_BYTES, LINEAGE_BYTES
from graph_tools.store.timeline import Position
from graph_tools.tensors import Array, TensorSource, rows_per_chunk

SCHEMA = "lineage/1"
PLACE = Path("assets.extra") / "recprocessor" / "lineage.json"
"""Where the file is in an export or an artifact."""

_CHUNK_BYTES = 4 << 20
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_VARIABLE, _TABLE, _FILE = range(3)


def read_lineage(model: Path) -> Position | None:
    """Read the place of a model in its timeline; None if it has no `lineage.json`.

    Raises
    ------
    UnreadableError
        The file is damaged.
    """
    path = model / PLACE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}, expected JSON") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UnreadableError(f"{path}: another schema, expected {SCHEMA}")
    epoch = data.get("epoch")
    if type(epoch) is not int or not 0 <= epoch <= GREATEST:
        raise UnreadableError(f"{path}: epoch {epoch!r}, expected 0 to {GREATEST}")
    return Position(
        _hexadecimal(path, data, "lineage", LINEAGE_BYTES), epoch, _hexadecimal(path, data, "chain", HASH_BYTES)
    )


def _hexadecimal(path: Path, data: Mapping[str, Any], member: str, size: int) -> bytes:
    text = data.get(member)
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != size or text != found.hex():
        raise UnreadableError(f"{path}: {member} {text!r}, expected {2 * size} hexadecimal digits")
    return found


def write_lineage(model: Path, position: Position) -> None:
    """Write the place of a model in its timeline into an artifact.

    Raises
    ------
    ConversionError
        There is no room for it.
    """
    path = model / PLACE
    data = {
        "schema": SCHEMA,
        "lineage": position.lineage.hex(),
        "epoch": position.epoch,
        "chain": position.chain.hex(),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(data, path)
    except OSError as error:
        raise ConversionError(f"{path}: {error.strerror}, expected room and permission to write it") from error


# Lineages of models that have none


@dataclass(frozen=True)
class TableContent:
    """The content of a table, for its digest.

    Attributes
    ----------
    keys, rows : sequence of TensorSource
        The parts of the table: keys [n] and rows [n, dim].
    """

    keys: Sequence[TensorSource]
    rows: Sequence[TensorSource]


def digest_weights(
    variables: Mapping[str, TensorSource],
    tables: Mapping[str, TableContent],
    files: Mapping[str, str],
) -> bytes:
    """Return the SHA-256 [32] of all weights of a model, as docs/delta_format.md describes it.

    The weights are streamed.

    Parameters
    ----------
    files : mapping of str to str
        SHA-256 in hexadecimal of the files of tables that have their own.
    """
    digest = _Digest()
    records = [(name.encode(), _VARIABLE, name) for name in variables]
    records += [(name.encode(), _TABLE, name) for name in tables]
    records += [(name.encode(), _FILE, name) for name in files]
    for _, kind, name in sorted(records):
        digest.string(name)
        digest.number(kind)
        if kind == _VARIABLE:
            digest.tensors([variables[name]])
        elif kind == _TABLE:
            digest.tensors(tables[name].keys)
            digest.tensors(tables[name].rows)
        else:
            digest.hash.update(bytes.fromhex(files[name]))
    return digest.hash.digest()


class _Digest:
    """Adds records to a SHA-256."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def number(self, value: int) -> None:
        self.hash.update(_NUMBER.pack(value))

    def string(self, text: str) -> None:
        """Add a name as the directory of a segment has it."""
        packed = _LENGTH.pack(len(text.encode())) + text.encode()
        self.hash.update(packed + bytes(-len(packed) % 8))

    def tensors(self, parts: Sequence[TensorSource]) -> None:
        """Add the parts of one tensor: type, number of dimensions, shape, elements."""
        first = parts[0]
        shape = (sum(part.shape[0] for part in parts), *first.shape[1:]) if first.shape else ()
        self.string("string" if first.dtype == object else first.dtype.name)
        self.number(len(shape))
        for size in shape:
            self.number(size)
        for part in parts:
            for block in part.chunks(rows_per_chunk(part, _CHUNK_BYTES)):
                self._elements(block)

    def _elements(self, block: Array) -> None:
        if block.dtype != object:
            self.hash.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
            return
        self.hash.update(b"".join(_NUMBER.pack(len(text)) + text for text in block.reshape(-1).tolist()))

# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint: arrays as they are, each with its size and CRC-32 in the manifest.

A checkpoint is a folder, which appears under its name when it is complete:

    manifest.json                                    what follows, and all sizes and checksums
    dense.bin                                        variables, one after the other
    tables/0000/filter.bin                           state of the admission filter
    tables/0000/evicted/keys.bin                     keys that left since the checkpoint before
    tables/0000/part-00000/keys.bin, values.bin, meta.bin
                                                     rows: int64 [n], float32 [full rows, dim + slots], uint32 [n, 3]
    .../lengths.bin, texts.bin                       string keys: uint32 [n], their bytes
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from elastic_training.checkpoints.cut import Cut, Keys, Rows

MANIFEST = "manifest.json"
VERSION = 1
_PART_BYTES = 64 << 20
_CHECK_BYTES = 4 << 20


class Writer:
    """Writes the files of a checkpoint into a folder.

    Parameters
    ----------
    folder : Path
        Must not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._sizes: dict[str, list[int]] = {}
        self._open: dict[str, BinaryIO] = {}

    def append(self, name: str, data: Any) -> None:
        """Append an array or bytes to a file; empty ones make the file too."""
        if name not in self._open:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[name] = path.open("xb")
            self._sizes[name] = [0, 0]
        view = memoryview(np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else data)
        self._open[name].write(view)
        size = self._sizes[name]
        size[0] += view.nbytes
        size[1] = zlib.crc32(view, size[1])

    def close_files(self) -> None:
        """Bring the files to the disk."""
        for file in self._open.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        self._open.clear()

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self._open.values():
            # What a file has buffered may not fit on the disk.
            with contextlib.suppress(OSError):
                file.close()

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, with the sizes and checksums of all files."""
        self.close_files()
        body = {"version": VERSION, **manifest, "files": self._sizes}
        text = json.dumps({**body, "crc32": _crc_of(body)}, indent=1).encode()
        path = self.folder / MANIFEST
        with path.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        for folder, _, _ in os.walk(self.folder):
            sync_folder(Path(folder))


def _crc_of(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _append_keys(writer: Writer, folder: str, keys: Keys) -> None:
    writer.append(f"{folder}/keys.bin", keys.numbers)
    if len(keys.lengths):
        writer.append(f"{folder}/lengths.bin", keys.lengths)
        writer.append(f"{folder}/texts.bin", keys.texts)


def write_table(writer: Writer, cut: Cut, position: int, token: int = 0) -> dict[str, Any]:
    """Write the rows of a table, and return what the manifest says of it.

    Parameters
    ----------
    writer, cut, position
        Where to, and which table of the cut.
    token : int
        Of the cut, if rows on SSD stay there; else 0.
    """
    folder = f"tables/{position:04}"
    description = cut.describe(position)
    evicted = cut.evicted(position)
    if len(evicted.numbers):
        _append_keys(writer, f"{folder}/evicted", evicted)
    parts = rows = size = 0
    for block in cut.rows(position):
        if parts == 0 or size >= _PART_BYTES:
            parts, size = parts + 1, 0
            writer.close_files()
        part = f"{folder}/part-{parts - 1:05}"
        _append_keys(writer, part, block.keys)
        writer.append(f"{part}/values.bin", block.values)
        writer.append(f"{part}/meta.bin", block.meta)
        rows += len(block.meta)
        size += block.values.nbytes + block.meta.nbytes + block.keys.numbers.nbytes + len(block.keys.texts)
    writer.append(f"{folder}/filter.bin", cut.filter(position))
    run = cut.promise(position) if token else ""
    if run:
        description["ssd"] = {"run": run, "token": token}
    return {**description, "folder": folder, "parts": parts, "rows": rows, "evicted": len(evicted.numbers)}


class Reader:
    """The files of a checkpoint.

    Raises
    ------
    ValueError
        If the manifest is not that of a checkpoint, or was changed; the message names the file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / MANIFEST
        try:
            body = json.loads(path.read_bytes())
            crc = body.pop("crc32")
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file, expected the manifest of a checkpoint") from None
        except (ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: torn ({error}), expected the manifest of a checkpoint") from error
        if crc != _crc_of(body):
            raise ValueError(f"{path}: torn: its checksum is {_crc_of(body)}, expected {crc}")
        if body["version"] != VERSION:
            raise ValueError(f"{path}: version {body['version']}, expected {VERSION}")
        self.manifest: dict[str, Any] = body

    def verify(self) -> None:
        """Read all files.

        Raises
        ------
        ValueError
            If one of them is torn; the message names it.
        """
        for name, (size, crc) in self.manifest["files"].items():
            path = self.folder / name
            try:
                found = path.stat().st_size
                if found != size:
                    raise ValueError(f"{path}: torn: {found} bytes, expected {size}")
                with path.open("rb") as file:
                    value = 0
                    while block := file.read(_CHECK_BYTES):
                        value = zlib.crc32(block, value)
            except FileNotFoundError:
                raise ValueError(f"{path}: no such file, expected {size} bytes") from None
            if value != crc:
                raise ValueError(f"{path}: torn: its checksum is {value}, expected {crc}")

    def bytes_of(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _keys(self, folder: str) -> Keys:
        numbers = np.fromfile(self.folder / folder / "keys.bin", np.int64)
        if f"{folder}/lengths.bin" not in self.manifest["files"]:
            return Keys(numbers, np.zeros(0, np.uint32), b"")
        lengths = np.fromfile(self.folder / folder / "lengths.bin", np.uint32)
        return Keys(numbers, lengths, self.bytes_of(f"{folder}/texts.bin"))

    def evicted(self, table: dict[str, Any]) -> Keys:
        if table["evicted"] == 0:
            return Keys(np.zeros(0, np.int64), np.zeros(0, np.uint32), b"")
        return self._keys(f"{table['folder']}/evicted")

    def rows(self, table: dict[str, Any]) -> Iterator[Rows]:
        """Read the rows of a table, a part at a time."""
        for number in range(table["parts"]):
            part = f"{table['folder']}/part-{number:05}"
            values = np.fromfile(self.folder / part / "values.bin", np.float32)
            meta = np.fromfile(self.folder / part / "meta.bin", np.uint32)
            columns = table["dim"] + table["slots"]
            yield Rows(self._keys(part), values.reshape(-1, columns), meta.reshape(-1, 3))

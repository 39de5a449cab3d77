# SPDX-License-Identifier: Apache-2.0
"""Write a file of a bundle under a temporary name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from graph_tools.bundle import checksum
from graph_tools.errors import ConversionError
from graph_tools.tensors import Array

# A block is checksummed and written while it is in the second-level cache.
_BLOCK_BYTES = 512 << 10


class OutputFile:
    """A file under a temporary name; errors of the system become `ConversionError`.

    Attributes
    ----------
    size : int [bytes]
        Number of bytes written so far.
    purpose : str
        What is being written, for messages.
    digest : hash object or None
        SHA-256 of the bytes written so far, if requested.
    """

    def __init__(self, path: Path, prefix: Path, digest: bool = False) -> None:
        self.path = path
        self._prefix = prefix
        self.size = 0
        self.purpose = "a tensor bundle"
        self.digest = hashlib.sha256() if digest else None
        try:
            self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> ConversionError:
        found = f"{error.strerror} after {self.size} bytes"
        return ConversionError(f"{self._prefix}: {found}, expected room and permission for {self.purpose}")

    def write(self, raw: Array) -> None:
        """Append raw [n] uint8."""
        assert self._file is not None, "written after close"
        if self.digest is not None:
            self.digest.update(raw.data)
        done = 0
        try:
            while done < len(raw):
                count = os.write(self._file, raw[done:].data)
                done += count
                self.size += count
        except OSError as error:
            raise self._refused(error) from error

    def write_summed(self, raw: Array, crc: int) -> int:
        """Append raw [n] uint8, and return `crc` extended by it."""
        for begin in range(0, len(raw), _BLOCK_BYTES):
            block = raw[begin : begin + _BLOCK_BYTES]
            crc = checksum.extend(crc, block)
            self.write(block)
        return crc

    def close(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            os.close(file)
        except OSError as error:
            raise self._refused(error) from error

    def rename(self, final: Path) -> None:
        try:
            self.path.rename(final)
        except OSError as error:
            raise self._refused(error) from error

    def discard(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
        self.path.unlink(missing_ok=True)

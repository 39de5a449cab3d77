# SPDX-License-Identifier: Apache-2.0
"""Define and check the header of a segment, as docs/delta_format.md describes it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from graph_tools.bundle import checksum
from graph_tools.store.block_sums import BLOCK_BYTES

MAGIC = b"RECDEL\r\n"
VERSION = 1
HEADER_BYTES = 256
ALIGNMENT = 64
HASH_BYTES = 32
LINEAGE_BYTES = 16
#: Epochs and terms have 16 digits in the names of files.
GREATEST = 10**16 - 1
UNKNOWN_TIME = -(1 << 63)
NO_HASH = bytes(HASH_BYTES)
#: A compatible feature: the directory ends with the chain hashes of all epochs but the last.
LISTS_CHAINS = 1
#: The shortest directory has the counts only.
COUNTS_BYTES = 16

_FIXED = struct.Struct("<8sIIQQQ16sQQQqq32s32sQQQI")
_CRC = struct.Struct("<I")
_CRC_OFFSET = HEADER_BYTES - _CRC.size


class WrongSegmentError(Exception):
    """A segment has a value that is not allowed; the message says which, and what was expected."""

    def __init__(self, found: object, expected: object) -> None:
        super().__init__(f"{found}, expected {expected}")


@dataclass(frozen=True)
class SegmentHeader:
    """The header of a segment; the fields are those of the format.

    Attributes
    ----------
    lineage : bytes [16]
    first_epoch, last_epoch, term : int
    event_time, write_time : int [µs since 1970, UTC]
    previous : bytes [32]
    chain : bytes [32]
        Zeros unless the segment is compacted.
    file_size, directory_offset, directory_size : int [bytes]
        The writer computes them.
    compatible : int
        Features that readers may ignore.
    """

    lineage: bytes
    first_epoch: int
    last_epoch: int
    term: int
    previous: bytes
    event_time: int = UNKNOWN_TIME
    write_time: int = 0
    chain: bytes = NO_HASH
    file_size: int = 0
    directory_offset: int = 0
    directory_size: int = 0
    compatible: int = 0

    @property
    def compacted(self) -> bool:
        """Return whether the segment has the changes of several epochs."""
        return self.first_epoch != self.last_epoch

    @property
    def checksums_offset(self) -> int:
        return self.directory_offset + self.directory_size

    @property
    def blocks(self) -> int:
        """Return the number of checksums."""
        return -(-(self.checksums_offset - HEADER_BYTES) // BLOCK_BYTES)

    def pack(self) -> bytes:
        """Return the header as 256 bytes."""
        packed = _FIXED.pack(
            MAGIC,
            VERSION,
            HEADER_BYTES,
            self.file_size,
            0,
            self.compatible,
            self.lineage,
            self.first_epoch,
            self.last_epoch,
            self.term,
            self.event_time,
            self.write_time,
            self.previous,
            self.chain,
            self.directory_offset,
            self.directory_size,
            self.checksums_offset,
            BLOCK_BYTES,
        ).ljust(_CRC_OFFSET, b"\0")
        return packed + _CRC.pack(checksum.extend(0, packed))


def unpack_header(raw: bytes, file_size: int) -> SegmentHeader:
    """Parse and check the header of a file of `file_size` bytes that begins with `raw`.

    Raises
    ------
    WrongSegmentError
        The header has another version, or is not consistent with itself or with the file.
    """
    if len(raw) < HEADER_BYTES:
        raise WrongSegmentError(f"{len(raw)} bytes", f"a segment, which has a header of {HEADER_BYTES} bytes")
    raw = raw[:HEADER_BYTES]
    magic, version, header_size, size, incompatible, compatible, *fields = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise WrongSegmentError(f"begins with {magic!r}", f"a segment, which begins with {MAGIC!r}")
    if version != VERSION:
        raise WrongSegmentError(f"format version {version}", f"version {VERSION}")
    (crc,) = _CRC.unpack_from(raw, _CRC_OFFSET)
    found = checksum.extend(0, raw[:_CRC_OFFSET])
    if crc != found:
        raise WrongSegmentError(f"header checksum {found:#010x}", f"{crc:#010x}; the file is damaged")
    if incompatible:
        raise WrongSegmentError(f"incompatible features {incompatible:#x}", "none that this version does not know")
    lineage, first, last, term, event, write, previous, chain, directory, directory_size, checksums, block = fields
    header = SegmentHeader(
        lineage, first, last, term, previous, event, write, chain, size, directory, directory_size, compatible
    )
    _check_sizes(header, file_size, header_size, checksums, block)
    _check_epochs(header)
    if any(raw[_FIXED.size : _CRC_OFFSET]):
        raise WrongSegmentError(f"reserved bytes from {_FIXED.size} on that are set", "zeros")
    return header


def _check_sizes(header: SegmentHeader, file_size: int, header_size: int, checksums: int, block: int) -> None:
    """Raise an error for the first size that contradicts another one or the file."""
    if header_size != HEADER_BYTES:
        raise WrongSegmentError(f"header_size {header_size}", HEADER_BYTES)
    if header.file_size != file_size:
        expected = f"file_size {header.file_size}, as its header says; the file is truncated or extended"
        raise WrongSegmentError(f"{file_size} bytes", expected)
    if block != BLOCK_BYTES:
        raise WrongSegmentError(f"block_size {block}", BLOCK_BYTES)
    if header.directory_offset < HEADER_BYTES or header.directory_offset % ALIGNMENT:
        expected = f"a multiple of {ALIGNMENT}, {HEADER_BYTES} or more"
        raise WrongSegmentError(f"directory_offset {header.directory_offset}", expected)
    if header.directory_size < COUNTS_BYTES or header.directory_size % 8:
        raise WrongSegmentError(f"directory_size {header.directory_size}", f"a multiple of 8, {COUNTS_BYTES} or more")
    if checksums != header.checksums_offset:
        raise WrongSegmentError(f"checksums_offset {checksums}", f"{header.checksums_offset}, the end of the directory")
    end = header.checksums_offset + 4 * header.blocks + HASH_BYTES
    if end != file_size:
        expected = f"{end}, the end of the hash after {header.blocks} checksums at {header.checksums_offset}"
        raise WrongSegmentError(f"file_size {file_size}", expected)


def _check_epochs(header: SegmentHeader) -> None:
    if not 1 <= header.first_epoch <= GREATEST:
        raise WrongSegmentError(f"first_epoch {header.first_epoch}", f"1 to {GREATEST}")
    if not header.first_epoch <= header.last_epoch <= GREATEST:
        raise WrongSegmentError(f"last_epoch {header.last_epoch}", f"{header.first_epoch} to {GREATEST}")
    if not 1 <= header.term <= GREATEST:
        raise WrongSegmentError(f"term {header.term}", f"1 to {GREATEST}")
    if (header.chain != NO_HASH) != header.compacted:
        expected = "a chain hash" if header.compacted else "zeros"
        raise WrongSegmentError(
            f"chain {header.chain.hex()} for epochs {header.first_epoch} to {header.last_epoch}", expected
        )


def aligned(offset: int) -> int:
    """Return the next multiple of 64, where an array may begin."""
    return -(-offset // ALIGNMENT) * ALIGNMENT

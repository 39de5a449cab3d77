# SPDX-License-Identifier: Apache-2.0
"""Define and check the header of an embedding table's file, as docs/table_format.md describes it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from graph_tools.bundle import checksum
from graph_tools.errors import UnreadableError
from graph_tools.store.block_sums import BLOCK_BYTES
from graph_tools.store.row_runs import MOST_NARROW_WIDTHS, NarrowRows, RowRun, row_runs, rows_problem
from graph_tools.store.row_sizes import row_size

MAGIC = b"RECEMB\r\n"
#: What writers write; readers read version 1, too.
VERSION = 2
HEADER_BYTES = 256
ROW_ALIGNMENT = 4096
INDEX_ALIGNMENT = 64
#: The number of rows and default rows together must be smaller.
MOST_ROWS = (1 << 32) - 16

ROW_TYPES = ("fp32", "bf16", "fp16", "int8", "int4")
INDEX_KINDS = ("direct", "int64", "string")
ABSENT_KEYS = ("zeros", "error", "default")

BUCKET_BYTES = 64
BUCKET_KEYS = 5

_FIXED = struct.Struct("<8sIIQQQIIIIIIQQ")
_SECTION = struct.Struct("<QQII")
_MASKS = struct.Struct("<QQ")
_BLOCK_SIZE = struct.Struct("<I")
_NARROW = struct.Struct("<II")
_CRC = struct.Struct("<I")
_SECTIONS = ("row_data", "index", "key_offsets", "key_bytes")
_MASKS_OFFSET = _FIXED.size + len(_SECTIONS) * _SECTION.size
_CHECKSUMS_OFFSET = _MASKS_OFFSET + _MASKS.size
_BLOCK_SIZE_OFFSET = _CHECKSUMS_OFFSET + _SECTION.size
_NARROW_OFFSET = _BLOCK_SIZE_OFFSET + _BLOCK_SIZE.size
_CRC_OFFSET = HEADER_BYTES - _CRC.size
# The incompatible feature of files that have rows of different widths.
_NARROW_ROWS = 1


@dataclass(frozen=True)
class Section:
    """A part of the file; a missing one has zeros.

    Attributes
    ----------
    offset, size : int [bytes]
    crc : int
        CRC-32C of its bytes; 0 in version 2, except for `checksums`.
    """

    offset: int = 0
    size: int = 0
    crc: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True)
class Header:
    """The header of a file; the fields are those of the format. Version 1 has no `compatible` and no `checksums`."""

    file_size: int
    rows: int
    default_rows: int
    dim: int
    row_type: str
    row_stride: int
    index_kind: str
    absent_key: str
    home_buckets: int
    buckets: int
    row_data: Section
    index: Section = Section()
    key_offsets: Section = Section()
    key_bytes: Section = Section()
    checksums: Section = Section()
    compatible: int = 0
    version: int = VERSION
    narrow: tuple[NarrowRows, ...] = ()

    @property
    def runs(self) -> list[RowRun]:
        """Return the runs of rows of one width."""
        full = (self.dim, self.row_stride)
        return row_runs(self.rows, self.default_rows, self.row_type, full, self.narrow)

    @property
    def blocks(self) -> int:
        """Return the number of blocks with a checksum."""
        return self.checksums.size // _CRC.size

    def sections(self) -> dict[str, Section]:
        """Return the sections with data by name, in the order of the header."""
        return {name: getattr(self, name) for name in _SECTIONS}

    def pack(self) -> bytes:
        """Return the header as 256 bytes."""
        packed = _FIXED.pack(
            MAGIC,
            self.version,
            HEADER_BYTES,
            self.file_size,
            self.rows,
            self.default_rows,
            self.dim,
            ROW_TYPES.index(self.row_type),
            self.row_stride,
            INDEX_KINDS.index(self.index_kind),
            ABSENT_KEYS.index(self.absent_key),
            0,
            self.home_buckets,
            self.buckets,
        )
        packed += b"".join(
            _SECTION.pack(section.offset, section.size, section.crc, 0) for section in self.sections().values()
        )
        if self.version > 1:
            sums = self.checksums
            features = _NARROW_ROWS if self.narrow else 0
            packed += _MASKS.pack(features, self.compatible) + _SECTION.pack(sums.offset, sums.size, sums.crc, 0)
            packed += _BLOCK_SIZE.pack(BLOCK_BYTES)
            packed += b"".join(_NARROW.pack(each.first, each.dim) for each in self.narrow)
        packed = packed.ljust(_CRC_OFFSET, b"\0")
        return packed + _CRC.pack(checksum.extend(0, packed))


class _WrongError(Exception):
    """A header has a value that is not allowed; the message says which, and what was expected."""

    def __init__(self, found: object, expected: object) -> None:
        super().__init__(f"{found}, expected {expected}")


def unpack(raw: bytes, file_size: int, where: str) -> Header:
    """Parse and check the header of a file of `file_size` bytes that begins with `raw`.

    Raises
    ------
    UnreadableError
        The header has another version or an unknown feature, or is not consistent with itself or with the file.
    """
    try:
        header = _parse(raw[:HEADER_BYTES], _check_format(raw))
        _check_sizes(header, file_size)
    except _WrongError as error:
        raise UnreadableError(f"{where}: {error}") from error
    return header


def _check_format(raw: bytes) -> int:
    """Return the version of the header with which `raw` begins; raise an error if it is unknown or damaged."""
    if len(raw) < HEADER_BYTES:
        raise _WrongError(f"{len(raw)} bytes", f"an embedding table of at least {HEADER_BYTES} bytes")
    magic, version, *_ = _FIXED.unpack_from(raw)
    if magic != MAGIC:
        raise _WrongError(f"begins with {bytes(magic)!r}", f"an embedding table, which begins with {MAGIC!r}")
    if not 1 <= version <= VERSION:
        expected = f"1 to {VERSION}; write it again with this version of graph-tools"
        raise _WrongError(f"format version {version}", expected)
    (crc,) = _CRC.unpack_from(raw, _CRC_OFFSET)
    found = checksum.extend(0, raw[:_CRC_OFFSET])
    if crc != found:
        raise _WrongError(f"header checksum {found:#010x}", f"{crc:#010x}; the file is damaged")
    return int(version)


def _parse(raw: bytes, version: int) -> Header:
    """Return the header, with sizes that may contradict each other."""
    header_size, *fields = _FIXED.unpack_from(raw)[2:]
    size, rows, default_rows, dim, row_type, stride, index_kind, absent_key, reserved, home, buckets = fields
    for name, value, names in (
        ("row_type", row_type, ROW_TYPES),
        ("index_kind", index_kind, INDEX_KINDS),
        ("absent_key", absent_key, ABSENT_KEYS),
    ):
        if value >= len(names):
            raise _WrongError(f"{name} {value}", f"a number below {len(names)}")
    sections = {}
    parts: tuple[str, ...] = _SECTIONS
    compatible, end = 0, _MASKS_OFFSET
    narrow: tuple[NarrowRows, ...] = ()
    if version > 1:
        compatible, narrow = _parse_features(raw)
        end = _NARROW_OFFSET + len(narrow) * _NARROW.size
        parts = (*_SECTIONS, "checksums")
    for place, name in enumerate(parts):
        begin = _CHECKSUMS_OFFSET if name == "checksums" else _FIXED.size + place * _SECTION.size
        offset, length, crc, zero = _SECTION.unpack_from(raw, begin)
        sections[name] = Section(offset, length, crc)
        reserved |= zero | (crc if version > 1 and name != "checksums" else 0)
    if reserved or any(raw[end:_CRC_OFFSET]) or header_size != HEADER_BYTES:
        raise _WrongError("reserved bytes that are set, or another header size", f"zeros and {HEADER_BYTES}")
    return Header(
        file_size=size,
        rows=rows,
        default_rows=default_rows,
        dim=dim,
        row_type=ROW_TYPES[row_type],
        row_stride=stride,
        index_kind=INDEX_KINDS[index_kind],
        absent_key=ABSENT_KEYS[absent_key],
        home_buckets=home,
        buckets=buckets,
        compatible=compatible,
        version=version,
        narrow=narrow,
        **sections,
    )


def _parse_features(raw: bytes) -> tuple[int, tuple[NarrowRows, ...]]:
    """Return the features that a reader may ignore, and narrow rows; raise an error for any other feature."""
    incompatible, compatible = _MASKS.unpack_from(raw, _MASKS_OFFSET)
    if incompatible & ~_NARROW_ROWS:
        raise _WrongError(f"incompatible features {incompatible:#x}", "none that this version does not know")
    (size,) = _BLOCK_SIZE.unpack_from(raw, _BLOCK_SIZE_OFFSET)
    if size != BLOCK_BYTES:
        raise _WrongError(f"block_size {size}", BLOCK_BYTES)
    if not incompatible:
        return int(compatible), ()
    narrow: list[NarrowRows] = []
    for place in range(MOST_NARROW_WIDTHS):
        first, dim = _NARROW.unpack_from(raw, _NARROW_OFFSET + place * _NARROW.size)
        if not dim:
            break
        narrow.append(NarrowRows(first, dim))
    if not narrow:
        raise _WrongError("no widths of narrow rows", "some")
    return int(compatible), tuple(narrow)


def _check_sizes(header: Header, file_size: int) -> None:
    """Raise an error for the first size that contradicts another one or the file."""
    if header.file_size != file_size:
        expected = f"{header.file_size} bytes, as its header says; the file is truncated or extended"
        raise _WrongError(f"{file_size} bytes", expected)
    rows = header.rows + header.default_rows
    if header.dim < 1 or rows >= MOST_ROWS:
        raise _WrongError(f"{rows} rows of dim {header.dim}", f"fewer than {MOST_ROWS} rows of dim 1 or more")
    if (header.default_rows > 0) != (header.absent_key == "default"):
        found = f"{header.default_rows} default rows with absent keys '{header.absent_key}'"
        raise _WrongError(found, "default rows for absent keys 'default' only")
    least = row_size(header.row_type, header.dim)
    alignment = 4 if least >= 4 else 2
    if header.row_stride < least or header.row_stride % alignment:
        raise _WrongError(f"row stride {header.row_stride}", f"a multiple of {alignment}, {least} or more")
    problem = rows_problem(header.rows, header.dim, header.narrow)
    if problem is not None:
        raise _WrongError(*problem.split(", expected "))
    keyed, strings = header.index_kind != "direct", header.index_kind == "string"
    if not (
        0 < header.home_buckets <= header.buckets < 1 << 32 if keyed else header.buckets == header.home_buckets == 0
    ):
        found = f"{header.home_buckets} home buckets of {header.buckets} with index '{header.index_kind}'"
        raise _WrongError(found, "buckets for a table with keys, and none for others")
    sizes = {
        "row_data": max((run.offset + run.size for run in header.runs), default=0),
        "index": header.buckets * BUCKET_BYTES,
        "key_offsets": 8 * (header.rows + 1) if strings else 0,
        "key_bytes": header.key_bytes.size if strings else 0,
    }
    _check_sections(header, sizes)


def _check_sections(header: Header, sizes: dict[str, int]) -> None:
    alignments = {"row_data": ROW_ALIGNMENT, "index": INDEX_ALIGNMENT, "key_offsets": 8, "key_bytes": 1}
    end = HEADER_BYTES
    for name, section in sorted(header.sections().items(), key=lambda item: (item[1].offset, item[1].size)):
        if section.size != sizes[name]:
            raise _WrongError(f"{name} of {section.size} bytes", f"{sizes[name]} bytes")
        if not section.size:
            if section.offset or section.crc:
                raise _WrongError(f"{name} at {section.offset} without bytes", "zeros")
            continue
        if section.offset < end or section.offset % alignments[name] or section.end > header.file_size:
            within = f"a multiple of {alignments[name]}, between {end} and {header.file_size}"
            raise _WrongError(f"{name} at {section.offset} to {section.end}", within)
        end = section.end
    if header.version > 1:
        _check_checksums(header, end)


def _check_checksums(header: Header, end: int) -> None:
    """Raise an error unless there is a checksum for each block up to the last of them, and nothing behind."""
    sums = header.checksums
    offset = -(-end // INDEX_ALIGNMENT) * INDEX_ALIGNMENT
    blocks = -(-(offset - HEADER_BYTES) // BLOCK_BYTES)
    expected = (offset, _CRC.size * blocks) if blocks else (0, 0)
    if (sums.offset, sums.size) != expected or (not blocks and sums.crc):
        found = f"checksums of {sums.size} bytes at {sums.offset}"
        raise _WrongError(found, f"{expected[1]} bytes at {expected[0]}")
    if header.file_size != max(sums.end, HEADER_BYTES):
        raise _WrongError(f"{header.file_size} bytes", f"{sums.end}, the end of the checksums")

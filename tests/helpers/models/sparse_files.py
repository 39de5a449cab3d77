# SPDX-License-Identifier: Apache-2.0
"""Write sparse tables like the training systems, value by value, from their documented formats.

No code is shared with the readers: checksums are computed bit by bit and messages are encoded by protobuf itself.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from helpers.models.plain_crc import masked_crc32c

Row = Sequence[float]


# ---- TFRecord


def tfrecord(messages: Iterable[bytes]) -> bytes:
    out = b""
    for message in messages:
        length = struct.pack("<Q", len(message))
        out += length + struct.pack("<I", masked_crc32c(length)) + message + struct.pack("<I", masked_crc32c(message))
    return out


def compressed(data: bytes, compression: str) -> bytes:
    return {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[compression](data)


# ---- Monolith


@cache
def _monolith_classes() -> dict[str, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="rows_of_tests.proto", package="rows_of_tests", syntax="proto2")

    def message(name: str, *fields: tuple[str, int, int, int], type_name: str = "", packed: bool = False) -> None:
        made = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            added = made.field.add(name=field_name, number=number, label=label, type=kind)
            if kind == field.TYPE_MESSAGE:
                added.type_name = type_name
            if packed and label == field.LABEL_REPEATED:
                added.options.packed = True

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message("State", ("norm", 1, many, field.TYPE_FLOAT), ("step", 2, one, field.TYPE_INT64))
    entry = (
        ("id", 1, one, field.TYPE_SFIXED64),
        ("num", 2, many, field.TYPE_FLOAT),
        ("opt", 3, one, field.TYPE_MESSAGE),
        ("last_update_ts_sec", 4, one, field.TYPE_INT64),
    )
    message("Entry", *entry, type_name=".rows_of_tests.State")
    message("PackedEntry", *entry, type_name=".rows_of_tests.State", packed=True)
    message("Metadata", ("table_name", 1, one, field.TYPE_STRING), ("num_entries", 2, one, field.TYPE_UINT64))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Entry", "PackedEntry", "Metadata")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"rows_of_tests.{name}")) for name in names
    }


def monolith_entry(
    key: int | None, row: Row, norm: Row = (), step: int | None = None, time: int | None = None, packed: bool = False
) -> bytes:
    entry = _monolith_classes()["PackedEntry" if packed else "Entry"]()
    if key is not None:
        entry.id = key
    entry.num.extend(row)
    if norm or step is not None:
        entry.opt.norm.extend(norm)
        if step is not None:
            entry.opt.step = step
    if time is not None:
        entry.last_update_ts_sec = time
    return bytes(entry.SerializeToString())


def monolith_metadata(table: str, count: int) -> bytes:
    return bytes(_monolith_classes()["Metadata"](table_name=table, num_entries=count).SerializeToString())


def write_monolith(folder: Path, prefix: str, shards: Sequence[Sequence[bytes]], compression: str = "none") -> None:
    for index, messages in enumerate(shards):
        path = folder / f"{prefix}-{index:05d}-of-{len(shards):05d}"
        path.write_bytes(compressed(tfrecord(messages), compression))


# ---- TensorNet


def tensornet_adagrad_line(
    sign: int, row: Row, g2sum: float = 0.1, show: float = 1, days: int = 0, click: float | None = None
) -> str:
    """Return a line in the format of current releases: with a tab at its end, unless it has clicks."""
    values = "".join(f"{value:g}\t" for value in row)
    return f"{sign}\t{len(row)}\t{values}{g2sum:g}\t{show:g}\t{days}\t" + ("" if click is None else f"{click:g}")


def tensornet_old_line(sign: int, row: Row, g2sum: float, version: int, show: float) -> str:
    """Return a line in the format of the first releases' tutorial."""
    return "\t".join(
        [str(sign), str(len(row)), *(f"{value:g}" for value in row), f"{g2sum:g}", f"{version}", f"{show:g}"]
    )


def tensornet_moments_line(sign: int, row: Row, show: float) -> str:
    """Return a line of Adam or Ftrl: each weight with its two moments."""
    return f"{sign}\t" + "".join(f"{value:g}\t{value / 2:g}\t{value * value:g}\t" for value in row) + f"{show:g}"


def tensornet_text(optimizer: str, dim: int, lines: Sequence[str]) -> bytes:
    """Return a block: the stream's last `endl` leaves an empty line."""
    return ("".join(f"{line}\n" for line in [f"opt_name:{optimizer}", f"dim:{dim}", *lines]) + "\n").encode()


def tensornet_adagrad_record(
    sign: int, row: Row, g2sum: float = 0.1, show: float = 1, days: int = 0, click: float | None = None
) -> bytes:
    record = struct.pack(f"<Q{len(row)}fffi", sign, *row, g2sum, show, days)
    return record if click is None else record + struct.pack("<f", click)


def tensornet_moments_record(sign: int, row: Row, show: float) -> bytes:
    moments = [value / 2 for value in row] + [value * value for value in row]
    return struct.pack(f"<Q{3 * len(row)}ff", sign, *row, *moments, show)


def tensornet_binary(dim: int, records: Sequence[bytes]) -> bytes:
    return struct.pack("<i", dim) + b"".join(records) + b"\n"


def write_tensornet(folder: Path, ranks: Sequence[Sequence[bytes]], pattern: str = "sparse_block_{}.gz") -> None:
    """Write a table's folder `sparse_table/<handle>`: the blocks of each rank."""
    for rank, blocks in enumerate(ranks):
        below = folder / f"rank_{rank}"
        below.mkdir(parents=True)
        for index, block in enumerate(blocks):
            path = below / pattern.format(index)
            path.write_bytes(gzip.compress(block, 1) if path.suffix == ".gz" else block)


# ---- raw files


def write_hps(folder: Path, keys: Sequence[int], rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "key").write_bytes(b"".join(struct.pack("<q", key) for key in keys))
    (folder / "emb_vector").write_bytes(b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))


def write_tfra(
    folder: Path,
    name: str,
    ranks: Sequence[Sequence[dict[int, Row]]],
    *,
    ranked: bool = True,
    key: str = "q",
    value: str = "f",
) -> None:
    """Write the tables of all devices of all processes: `ranks[process][device]` is a dictionary of rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, devices in enumerate(ranks):
        for index, table in enumerate(devices):
            process = f"_rank{rank}_size{len(ranks)}" if ranked else ""
            stem = f"{name}_mht_{index + 1}of{len(devices)}{process}"
            (folder / f"{stem}-keys").write_bytes(b"".join(struct.pack(f"<{key}", each) for each in table))
            values = b"".join(struct.pack(f"<{len(row)}{value}", *row) for row in table.values())
            (folder / f"{stem}-values").write_bytes(values)

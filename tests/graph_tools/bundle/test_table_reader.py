# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from graph_tools.bundle import BundleReader, checksum, varints
from graph_tools.bundle.table_reader import FOOTER_BYTES, read_table
from graph_tools.bundle.table_writer import write_table
from graph_tools.errors import UnreadableError


@pytest.fixture
def index(save) -> Path:
    return Path(f"{save({f'name_{i}': np.arange(i) for i in range(40)})}.index")


@pytest.mark.parametrize("size", [0, 47, 48, 200, -1])
def test_a_truncated_index_is_refused(index: Path, size: int) -> None:
    data = index.read_bytes()
    index.write_bytes(data[:size])
    with pytest.raises(UnreadableError, match=r"model\.index: .*expected (an index with a footer|0xdb4775248b80fb57)"):
        read_table(index)


def test_another_magic_is_refused(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:-8] + bytes(8))
    with pytest.raises(
        UnreadableError, match="its last eight bytes are 0x0000000000000000, expected 0xdb4775248b80fb57"
    ):
        read_table(index)


def test_every_changed_byte_is_detected_or_harmless(index: Path) -> None:
    data, entries = index.read_bytes(), read_table(index)
    found = 0
    for place in range(len(data)):
        index.write_bytes(data[:place] + bytes([data[place] ^ 0x11]) + data[place + 1 :])
        with contextlib.suppress(UnreadableError):
            assert read_table(index) == entries
            found -= 1
        found += 1
    # What may change: the footer's padding and the block of statistics, which is not read.
    assert found > len(data) - FOOTER_BYTES - 20


def test_falling_keys_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "x.index").open("wb") as out:
        write_table(out, [(b"b", b""), (b"a", b"")])
    with pytest.raises(UnreadableError, match=r"key b'a' after b'b', expected rising keys"):
        read_table(tmp_path / "x.index")


def write_blocks(pack: Callable[[bytes], bytes], kind: int) -> Callable[[Any, BinaryIO], bytes]:
    """Return a method that writes blocks in another way than ours do."""

    def write(block: Any, out: BinaryIO) -> bytes:
        raw = pack(block.content()) + bytes([kind])
        handle = varints.encode(out.tell()) + varints.encode(len(raw) - 1)
        out.write(raw + checksum.mask(checksum.extend(0, raw)).to_bytes(4, "little"))
        return handle

    return write


def test_blocks_compressed_with_snappy_are_read(index: Path, compress, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, size = read_table(index), index.stat().st_size
    monkeypatch.setattr("graph_tools.bundle.table_writer._Block.write", write_blocks(compress, 1))
    with index.open("wb") as out:
        write_table(out, entries)
    assert index.stat().st_size < size
    assert read_table(index) == entries
    assert BundleReader(index.with_suffix("")).tensor("name_3").read().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("pack", "kind", "message"),
    [
        (bytes, 2, r"compression 2 of the block at 0, expected 0 \(none\) or 1 \(Snappy\)"),
        (bytes, 1, "damaged index: "),
        (lambda block: b"", 0, "0 restart points in a block of 0 bytes"),
        (lambda block: block[:-1] + b"\x70", 0, "restart points in a block of"),
        (lambda block: b"\0\x7f\0" + block, 0, "an entry beyond the end of its block"),
        (lambda block: b"\1\0\0" + block, 0, "an entry beyond the end of its block"),
    ],
)
def test_damaged_blocks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes], kind: int, message: str
) -> None:
    monkeypatch.setattr("graph_tools.bundle.table_writer._Block.write", write_blocks(pack, kind))
    with (tmp_path / "x.index").open("wb") as out:
        write_table(out, [(b"a", b"1")])
    # The reader meets the block of places first.
    with pytest.raises(UnreadableError, match=message.replace(" at 0", " at [0-9]+")):
        read_table(tmp_path / "x.index")


def test_a_folder_in_place_of_the_index(tmp_path: Path) -> None:
    (tmp_path / "x.index").mkdir()
    with pytest.raises(UnreadableError, match=r"x\.index: Is a directory, expected the index of a tensor bundle"):
        read_table(tmp_path / "x.index")

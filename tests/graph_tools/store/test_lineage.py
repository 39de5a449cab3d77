# SPDX-License-Identifier: Apache-2.0
"""Test that a model's place in a timeline is kept, and that equal weights have one lineage."""

import hashlib
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.store.lineage import PLACE, TableContent, digest_weights, read_lineage, write_lineage
from graph_tools.store.timeline import Position
from graph_tools.tensors import ArrayTensor
from helpers.models.embedding_tables import streamed

POSITION = Position(bytes(range(16)), 7, bytes(range(32)))


def test_lineage_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_lineage(tmp_path, POSITION)
    assert read_lineage(tmp_path) == POSITION
    assert json.loads((tmp_path / PLACE).read_text()) == {
        "schema": "lineage/1",
        "lineage": bytes(range(16)).hex(),
        "epoch": 7,
        "chain": bytes(range(32)).hex(),
    }


def test_model_without_lineage_has_none(tmp_path: Path) -> None:
    assert read_lineage(tmp_path) is None
    (tmp_path / "graph.pb").touch()
    assert read_lineage(tmp_path / "graph.pb") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "lineage/2"}, "expected lineage/1"),
        ({"lineage": "00"}, "lineage '00', expected 32 hexadecimal digits"),
        ({"lineage": 5}, "lineage 5"),
        ({"chain": "g" * 64}, "chain 'ggg"),
        ({"chain": "AB" * 32}, "chain 'ABAB"),
        ({"epoch": -1}, "epoch -1"),
        ({"epoch": True}, "epoch True"),
        ({"epoch": 10**16}, "expected 0 to 9999999999999999"),
    ],
)
def test_damaged_lineage_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_lineage(tmp_path, POSITION)
    path = tmp_path / PLACE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnreadableError, match=message) as error:
        read_lineage(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", '"a"', "\\ud800"])
def test_lineage_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    write_lineage(tmp_path, POSITION)
    (tmp_path / PLACE).write_text(text)
    with pytest.raises(UnreadableError, match="expected"):
        read_lineage(tmp_path)


def test_lineage_that_cannot_be_written_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "assets.extra").touch()
    with pytest.raises(ConversionError, match="expected room"):
        write_lineage(tmp_path, POSITION)


def _strings(*keys: bytes) -> ArrayTensor:
    array = np.empty(len(keys), object)
    array[:] = keys
    return ArrayTensor(array)


def test_digest_covers_the_documented_bytes() -> None:
    def number(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}Q", *values)

    def name(text: str) -> bytes:
        packed = struct.pack("<I", len(text)) + text.encode()
        return packed + bytes(-len(packed) % 8)

    kernel, rows = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 1), np.float16)
    found = digest_weights(
        {"b": ArrayTensor(kernel), "a": ArrayTensor(np.array(5, np.int64))},
        {"a": TableContent([_strings(b"x", b"yz")], [ArrayTensor(rows)])},
        {"c": "ab" * 32},
    )
    expected = name("a") + number(0) + name("int64") + number(0) + number(5)
    expected += name("a") + number(1) + name("string") + number(1, 2) + number(1) + b"x" + number(2) + b"yz"
    expected += name("float16") + number(2, 2, 1) + rows.tobytes()
    expected += name("b") + number(0) + name("float32") + number(2, 2, 3) + kernel.tobytes()
    expected += name("c") + number(2) + b"\xab" * 32
    assert found == hashlib.sha256(expected).digest()


def test_digest_does_not_depend_on_parts() -> None:
    keys, rows = np.arange(9), np.arange(18, dtype=np.float32).reshape(9, 2)
    whole = TableContent([ArrayTensor(keys)], [ArrayTensor(rows)])
    parts = TableContent([ArrayTensor(keys[:4]), ArrayTensor(keys[4:])], [ArrayTensor(rows[:5]), ArrayTensor(rows[5:])])
    assert digest_weights({}, {"t": whole}, {}) == digest_weights({}, {"t": parts}, {})


def test_digest_streams_tables_larger_than_its_memory() -> None:
    count = 1_000_000
    rows = streamed(count, 16, lambda begin, end: np.zeros((end - begin, 16), np.float32))
    tracemalloc.start()
    digest_weights({"v": rows}, {}, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < count * 16 * 4 / 4

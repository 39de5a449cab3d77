# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_tools.bundle import BundleReader
from graph_tools.bundle.table_writer import write_table
from graph_tools.errors import UnreadableError

NUMERIC = ["float32", "float64", "float16", "int8", "int16", "int32", "int64"]
NUMERIC += ["uint8", "uint16", "uint32", "uint64", "complex64", "complex128"]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def test_reads_numbers_of_every_type(save, tf) -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.integers(0, 100, (5, 3)).astype(name) for name in NUMERIC}
    arrays["bool"] = np.array([True, False])
    arrays["bfloat16"] = random.standard_normal(7).astype(ml_dtypes.bfloat16)
    reader = BundleReader(save(arrays))
    assert reader.names() == sorted(arrays)
    for name, array in arrays.items():
        assert reader.entry(name) == (array.dtype, array.shape)
        assert reader.byte_size(name) == array.nbytes
        assert same(reader.tensor(name).read(), array)


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "int4", "uint4"])
def test_reads_small_types_as_stored(save, tf, name: str) -> None:
    tensor = tf.cast(
        tf.constant([0, 1, 3, 7], tf.int8 if "int" in name else tf.float32), getattr(tf.dtypes.experimental, name)
    )
    reader = BundleReader(save({"x": tensor}))
    assert same(reader.tensor("x").read(), tensor.numpy())


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_reads_quantized_types_as_structures(save, tf, name: str) -> None:
    array = np.array([(1,), (2,), (5,)], getattr(tf, name).as_numpy_dtype)
    assert same(BundleReader(save({"x": tf.constant(array)})).tensor("x").read(), array)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (0, 4), (2, 3, 4)])
def test_reads_numbers_of_any_shape(save, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    reader = BundleReader(save({"x": array}))
    assert same(reader.tensor("x").read(), array)
    reader.verify("x")


@pytest.mark.parametrize("rows", [1, 3, 10, 1000])
def test_chunks_have_at_most_the_rows_wanted(save, rows: int) -> None:
    array = np.arange(30, dtype=np.int64).reshape(10, 3)
    tensor = BundleReader(save({"x": array})).tensor("x")
    for _ in range(2):  # any number of times
        blocks = list(tensor.chunks(rows))
        assert max(len(block) for block in blocks) == min(rows, 10)
        assert same(np.concatenate(blocks), array)


STRINGS = [b"", b"a", b"\xff\x00\xfe", "Grüße 你好".encode(), b"x" * 127, b"y" * 128, b"z" * 20000, b"", b""]


@pytest.mark.parametrize("shape", [(9,), (3, 3), (0,), (), (2, 0)])
def test_reads_strings(save, tf, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape, dtype=int))
    array = np.array(STRINGS[2 : 2 + count] if count < 9 else STRINGS, object).reshape(shape)
    tensor = BundleReader(save({"x": tf.constant(array, tf.string)})).tensor("x")
    assert tensor.dtype == object
    for rows in (1, 2, 100):
        blocks = list(tensor.chunks(rows))
        assert [item for block in blocks for item in block.reshape(-1).tolist()] == array.reshape(-1).tolist()
    read = tensor.read()
    assert read.shape == shape
    assert read.tolist() == array.tolist()


def test_chunks_of_long_strings_are_bounded_by_bytes(save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_tools.bundle.strings.CHUNK_BYTES", 1000)
    array = np.array([b"x" * 400] * 10 + [b"y" * 5000] + [b""] * 50, object)
    blocks = list(BundleReader(save({"x": array})).tensor("x").chunks(1 << 20))
    assert [item for block in blocks for item in block] == array.tolist()
    assert [len(block) for block in blocks][:7] == [2, 2, 2, 2, 2, 1, 20]


def test_reads_more_lengths_than_a_block_holds(save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_tools.bundle.strings._LENGTH_BLOCK_BYTES", 7)
    array = np.array([b"s" * (index * 7 % 300) for index in range(200)], object)
    assert BundleReader(save({"x": array})).tensor("x").read().tolist() == array.tolist()


def test_reads_many_shards(save, merge) -> None:
    parts = [save({f"t{i}": np.full(i + 1, i, np.int32)}, name=f"part{i}") for i in range(4)]
    reader = BundleReader(merge(parts))
    assert reader.names() == ["t0", "t1", "t2", "t3"]
    assert [reader.tensor(f"t{i}").read().tolist() for i in range(4)] == [[i] * (i + 1) for i in range(4)]
    reader.check_files()


def test_reads_shards_whose_numbers_have_another_width(save) -> None:
    prefix = save({"x": np.arange(3)})
    Path(f"{prefix}.data-00000-of-00001").rename(f"{prefix}.data-0-of-1")
    assert BundleReader(prefix).tensor("x").read().tolist() == [0, 1, 2]


def test_reads_what_a_checkpoint_of_objects_holds(tf, tmp_path: Path) -> None:
    variable = tf.Variable([[1.0, 2.0]])
    prefix = tf.train.Checkpoint(v=variable, step=tf.Variable(3, dtype=tf.int64)).save(str(tmp_path / "ckpt"))
    reader = BundleReader(Path(prefix))
    expected = tf.train.load_checkpoint(prefix)
    assert set(reader.names()) == set(expected.get_variable_to_shape_map())
    assert reader.tensor("v/.ATTRIBUTES/VARIABLE_VALUE").read().tolist() == [[1.0, 2.0]]
    assert reader.tensor("_CHECKPOINTABLE_OBJECT_GRAPH").read().shape == ()
    assert "v" not in reader


def test_variants_are_listed_and_not_read(tf, save) -> None:
    variant = tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=1, element_dtype=tf.float32)
    reader = BundleReader(save({"list": variant, "x": np.arange(2)}))
    assert reader.names() == ["list", "x"]
    assert reader.entry("list").dtype == np.dtype(np.void)
    with pytest.raises(UnreadableError, match=r"tensor 'list': DT_VARIANT, expected numbers or strings"):
        reader.tensor("list")


def test_reads_an_index_of_many_blocks(save) -> None:
    arrays = {f"scope_{i % 7}/layer_{i:05d}/" + "n" * 100: np.int32(i) for i in range(6000)}
    prefix = save(arrays)
    assert os.path.getsize(f"{prefix}.index") > 600_000  # TensorFlow's blocks have 262,144 bytes
    reader = BundleReader(prefix)
    assert reader.names() == sorted(arrays)
    assert all(int(reader.tensor(name).read()) == arrays[name] for name in list(arrays)[::500])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tensors=st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=40),
        st.one_of(
            st.lists(st.binary(max_size=300), max_size=20).map(lambda items: np.array(items, object)),
            st.lists(st.integers(0, 4), max_size=3).map(lambda shape: np.ones(shape, np.float32)),
        ),
        min_size=1,
        max_size=8,
    ),
    rows=st.integers(1, 30),
)
def test_reads_random_bundles(save, tf, tensors: dict[str, Any], rows: int) -> None:
    kinds = {name: tf.constant(a, tf.string) if a.dtype == object else tf.constant(a) for name, a in tensors.items()}
    reader = BundleReader(save(kinds))
    assert set(reader.names()) == set(tensors)
    for name, array in tensors.items():
        blocks = list(reader.tensor(name).chunks(rows))
        assert reader.entry(name) == (array.dtype, array.shape)
        assert (
            [b.tolist() for b in blocks] == [array[i : i + rows].tolist() for i in range(0, len(array), rows)]
            if array.shape
            else blocks[0] == array
        )


def test_missing_files_are_named(save, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"none\.index: not found, expected the index of a tensor bundle"):
        BundleReader(tmp_path / "none")
    with pytest.raises(UnreadableError, match="a folder, expected the prefix"):
        BundleReader(tmp_path)
    prefix = save({"x": np.arange(3)})
    Path(f"{prefix}.data-00000-of-00001").unlink()
    reader = BundleReader(prefix)
    for read in (reader.check_files, lambda: reader.tensor("x")):
        with pytest.raises(
            UnreadableError, match=r"data-00000-of-00001: No such file .*shard that contains tensor 'x'"
        ):
            read()
    (tmp_path / "old").write_bytes(b"")
    with pytest.raises(UnreadableError, match=r"old: a file, expected a prefix with old\.index beside it"):
        BundleReader(tmp_path / "old")


def test_a_truncated_shard_is_named(save) -> None:
    prefix = save({"x": np.arange(100)})
    reader = BundleReader(prefix)
    tensor = reader.tensor("x")
    os.truncate(f"{prefix}.data-00000-of-00001", 799)
    with pytest.raises(UnreadableError, match=r"tensor 'x': a shard of 799 bytes, expected at least 800"):
        reader.tensor("x")
    with pytest.raises(
        UnreadableError, match=r"tensor 'x': the shard ends at byte 799 of the tensor, expected 800 bytes"
    ):
        tensor.read()


@pytest.mark.parametrize("place", [0, 799])
def test_a_changed_byte_is_found_before_the_last_rows(save, place: int) -> None:
    prefix = save({"x": np.arange(100)})
    data = bytearray(Path(f"{prefix}.data-00000-of-00001").read_bytes())
    data[place] ^= 1
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    reader = BundleReader(prefix)
    with pytest.raises(UnreadableError, match=r"tensor 'x': checksum 0x.*, expected 0x"):
        reader.verify("x")
    blocks = []
    with pytest.raises(UnreadableError):
        blocks.extend(reader.tensor("x").chunks(60))
    with pytest.raises(UnreadableError):
        reader.tensor("x").read()


# Three lengths, their checksum, "a", "bcd", "ef".
@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 2, "strings of 7 bytes behind 3 bytes of lengths, expected 13 bytes in all"),
        (0, 3, "strings of 8 bytes"),
        (0, 0x81, "lengths of strings that do not end|strings of|a string of"),
        (4, None, "of the lengths, expected 0x"),
        (7, None, "tensor 'x': checksum"),
        (12, None, "tensor 'x': checksum"),
    ],
)
def test_changed_strings_are_found(save, place: int, value: int | None, message: str) -> None:
    prefix = save({"x": np.array([b"a", b"bcd", b"ef"], object)})
    path = Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(path.read_bytes())
    assert len(data) == 13
    data[place] = data[place] ^ 1 if value is None else value
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=message):
        BundleReader(prefix).tensor("x").read()


def test_lengths_that_never_end_are_found(save) -> None:
    prefix = save({"x": np.array([b"s" * 50], object)})
    path = Path(f"{prefix}.data-00000-of-00001")
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(UnreadableError, match="lengths of strings that do not end"):
        BundleReader(prefix).tensor("x").read()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": 99}, "tensor 'x': DataType 99, expected numbers or strings"),
        ({"size": 11}, r"float32\[3\] in 11 bytes, expected 12"),
        ({"dtype": 7, "size": 6}, r"string\[3\] in 6 bytes, expected 7 or more"),
        ({"shard_id": 4}, "tensor 'x': in shard 4, expected one of 1 shards"),
        ({"offset": -1}, "12 bytes at -1, expected a place in a shard"),
        ({"offset": 1}, "a shard of 12 bytes, expected at least 13"),
        ({"crc32c": 5}, "checksum 0x.*, expected 0x00000005"),
    ],
)
def test_entries_that_contradict_are_refused(save, edit_index, change: dict[str, int], message: str) -> None:
    prefix = save({"x": np.ones(3, np.float32)})
    edit_index(prefix, b"x", lambda entry: [setattr(entry, key, value) for key, value in change.items()])
    reader = BundleReader(prefix)
    assert reader.names() == ["x"]
    with pytest.raises(UnreadableError, match=message):
        reader.verify("x")


def test_open_shapes_are_refused(save, edit_index) -> None:
    prefix = save({"x": np.ones(3, np.float32)})
    edit_index(prefix, b"x", lambda entry: setattr(entry.shape.dim[0], "size", -1))
    with pytest.raises(UnreadableError, match=r"tensor 'x': an open shape \[-1\]"):
        BundleReader(prefix).entry("x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: setattr(header, "endianness", 1), "big-endian data, expected little-endian"),
        (lambda header: setattr(header.version, "min_consumer", 2), "for readers of version 2, expected at most 1"),
        (lambda header: setattr(header, "num_shards", 0), "0 shards, expected at least one"),
    ],
)
def test_headers_of_other_bundles_are_refused(save, edit_index, change, message: str) -> None:
    prefix = save({"x": np.ones(3, np.float32)})
    edit_index(prefix, b"", change)
    with pytest.raises(UnreadableError, match=message):
        BundleReader(prefix)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(b"x", b"")], "no entry under the empty key, expected the header of a tensor bundle"),
        ([(b"", b"\xff")], "header: 1 bytes that do not parse, expected BundleHeaderProto"),
        ([(b"", b"\x08\x01"), (b"x", b"\xff\xff")], "x: 2 bytes that do not parse, expected BundleEntryProto"),
    ],
)
def test_tables_that_are_no_bundle_are_refused(
    tmp_path: Path, entries: list[tuple[bytes, bytes]], message: str
) -> None:
    with (tmp_path / "model.index").open("wb") as out:
        write_table(out, entries)
    with pytest.raises(UnreadableError, match=message):
        BundleReader(tmp_path / "model").tensor("x")


def test_an_unknown_name_is_refused(save) -> None:
    with pytest.raises(UnreadableError, match=r"model\.index: no tensor 'y', expected one of its 1 names"):
        BundleReader(save({"x": np.arange(2)})).tensor("y")


STREAM = """
import resource, sys
from pathlib import Path
from graph_tools.bundle import BundleReader, BundleWriter
from tensorflow.core.protobuf import tensor_bundle_pb2
source, target = map(Path, sys.argv[1:])
reader = BundleReader(source)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with BundleWriter(target) as writer:
    for name in reader.names():
        writer.add(name, reader.tensor(name))
    writer.finish()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_streaming_a_large_tensor_stays_small(save, edit_index, tmp_path: Path) -> None:
    from graph_tools.bundle import checksum

    size = 600 << 20
    prefix = save({"small": np.ones((1 << 20, 4), np.float32), "table": np.zeros((1, 16), np.float32)})
    shard = Path(f"{prefix}.data-00000-of-00001")
    crc = 0
    zeros = np.zeros(16 << 20, np.uint8)
    for begin in range(0, size, len(zeros)):
        crc = checksum.extend(crc, zeros[: size - begin])

    def grow(entry: Any) -> None:
        entry.offset, entry.size, entry.crc32c = shard.stat().st_size, size, checksum.mask(crc)
        entry.shape.dim[0].size = size // 64

    edit_index(prefix, b"table", grow)
    os.truncate(shard, shard.stat().st_size + size)  # sparse: zeros that take no room
    run = subprocess.run(
        [sys.executable, "-c", STREAM, prefix, tmp_path / "copy"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(run.stdout) < 100 << 10  # KiB

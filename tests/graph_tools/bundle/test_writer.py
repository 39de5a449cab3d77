# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_tools.bundle import BundleReader, BundleWriter
from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.tensors import ArrayTensor, StreamTensor

NUMERIC = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "bool"]
NUMERIC += ["uint8", "uint16", "uint32", "uint64", "complex64", "complex128"]


def write(prefix: Path, tensors: dict[str, np.ndarray], **options: Any) -> Path:
    with BundleWriter(prefix, **options) as writer:
        for name, array in tensors.items():
            writer.add(name, ArrayTensor(array))
        writer.finish()
    return prefix


def restored(tf: Any, prefix: Path, name: str, dtype: Any) -> np.ndarray:
    """Read through the op, which compares checksums."""
    (tensor,) = tf.raw_ops.RestoreV2(prefix=str(prefix), tensor_names=[name], shape_and_slices=[""], dtypes=[dtype])
    return tensor.numpy()


def test_tensorflow_reads_numbers_of_every_type(tf, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.integers(0, 100, (5, 3)).astype(name) for name in NUMERIC}
    arrays["bfloat16"] = random.standard_normal(7).astype(ml_dtypes.bfloat16)
    arrays["float8"] = random.standard_normal(7).astype(ml_dtypes.float8_e4m3fn)
    arrays["qint8"] = np.array([(1,), (2,)], tf.qint8.as_numpy_dtype)
    arrays["int4"] = np.array([1, 7, -8], ml_dtypes.int4)
    prefix = write(tmp_path / "model", arrays)
    reader = tf.train.load_checkpoint(str(prefix))
    assert set(reader.get_variable_to_shape_map()) == set(arrays)
    for name, array in arrays.items():
        dtype = reader.get_variable_to_dtype_map()[name]
        assert dtype == tf.as_dtype(array.dtype)
        found = restored(tf, prefix, name, dtype)
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 4)])
def test_tensorflow_reads_any_shape(tf, tmp_path: Path, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    strings = numbers.astype("S").astype(object)
    prefix = write(tmp_path / "model", {"numbers": numbers, "strings": strings})
    assert restored(tf, prefix, "numbers", tf.float32).tolist() == numbers.tolist()
    found = tf.train.load_checkpoint(str(prefix)).get_tensor("strings")
    assert np.array(found, object).tolist() == strings.tolist()
    assert BundleReader(prefix).tensor("strings").read().shape == shape


def test_tensorflow_reads_strings(tf, tmp_path: Path) -> None:
    strings = np.array([b"", b"\xff\x00", "Grüße".encode(), b"x" * 127, b"y" * 128, b"z" * 300000, b""], object)
    prefix = write(tmp_path / "model", {"x": strings})
    assert restored(tf, prefix, "x", tf.string).tolist() == strings.tolist()


def test_the_files_are_those_of_tensorflow(save, tf, tmp_path: Path) -> None:
    arrays = {
        "strings": np.array([[b"a", b"b" * 200]], object),
        "none": np.empty((0, 2), object),
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "empty": np.zeros((0, 3), np.int64),
        "scalar": np.float64(3),
    }
    theirs = save({k: tf.constant(a, tf.string) if a.dtype == object else a for k, a in arrays.items()}, name="theirs")
    ours = write(tmp_path / "ours", {name: np.asarray(arrays[name]) for name in arrays})
    shard = ".data-00000-of-00001"
    assert Path(f"{ours}{shard}").read_bytes() == Path(f"{theirs}{shard}").read_bytes()
    left, right = BundleReader(ours), BundleReader(theirs)
    assert [left._values[key] for key in left._values] == [right._values[key] for key in right._values]


def test_streams_in_chunks_and_views(tf, tmp_path: Path) -> None:
    array = np.arange(60, dtype=np.float32).reshape(10, 6)

    def blocks(rows: int) -> Iterator[np.ndarray]:
        for begin in (0, 3, 4):
            yield array[begin : {0: 3, 3: 4, 4: 10}[begin], ::2]

    with BundleWriter(tmp_path / "model") as writer:
        writer.add("blocks", StreamTensor(array.dtype, (10, 3), blocks))
        writer.add("turned", ArrayTensor(array.T))
        writer.add("swapped", ArrayTensor(array.astype(">f4")))
        writer.finish()
    assert restored(tf, tmp_path / "model", "blocks", tf.float32).tolist() == array[:, ::2].tolist()
    assert restored(tf, tmp_path / "model", "turned", tf.float32).tolist() == array.T.tolist()
    assert restored(tf, tmp_path / "model", "swapped", tf.float32).tolist() == array.tolist()


def test_large_tensors_are_spread_over_shards(tf, tmp_path: Path) -> None:
    arrays = {f"t{i}": np.full(size, i, np.float32) for i, size in enumerate([10, 10, 50, 1, 30])}
    prefix = write(tmp_path / "model", arrays, shard_bytes=100)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("model.data-*-of-00004"))]
    assert sizes == [80, 200, 4, 120]
    assert len(os.listdir(tmp_path)) == 5
    for name, array in arrays.items():
        assert restored(tf, prefix, name, tf.float32).tolist() == array.tolist()


def test_an_index_of_many_blocks(tf, tmp_path: Path) -> None:
    arrays = {f"scope_{i % 7}/layer_{i:05d}": np.array(i, np.int32) for i in range(5000)}
    prefix = write(tmp_path / "model", arrays)
    reader = tf.train.load_checkpoint(str(prefix))
    assert set(reader.get_variable_to_shape_map()) == set(arrays)
    assert all(reader.get_tensor(name) == arrays[name] for name in list(arrays)[::100])


def test_an_empty_bundle(tf, tmp_path: Path) -> None:
    prefix = write(tmp_path / "model", {})
    assert BundleReader(prefix).names() == []
    assert tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map() == {}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tensors=st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=40),
        st.one_of(
            st.lists(st.binary(max_size=300), max_size=20).map(lambda items: np.array(items, object)),
            st.lists(st.integers(0, 4), max_size=3).map(lambda shape: np.ones(shape, np.float32)),
        ),
        max_size=8,
    ),
    shard_bytes=st.integers(1, 500),
)
def test_tensorflow_reads_random_bundles(
    tf, tmp_path_factory, tensors: dict[str, np.ndarray], shard_bytes: int
) -> None:
    prefix = write(tmp_path_factory.mktemp("random") / "model", tensors, shard_bytes=shard_bytes)
    for name, array in tensors.items():
        found = restored(tf, prefix, name, tf.string if array.dtype == object else tf.float32)
        assert found.shape == array.shape
        assert found.tolist() == array.tolist()
        assert BundleReader(prefix).tensor(name).read().tolist() == array.tolist()


def test_files_get_their_names_at_the_end_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "variables"
    with BundleWriter(folder / "variables") as writer:
        writer.add("x", ArrayTensor(np.arange(3)))
        assert not list(folder.glob("variables*"))
        assert list(folder.iterdir())
    assert os.listdir(tmp_path) == []


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def blocks(rows: int) -> Iterator[np.ndarray]:
        yield np.zeros(5, np.int32)
        raise UnreadableError("source: damaged, expected not")

    writer = BundleWriter(tmp_path / "model")
    with pytest.raises(UnreadableError, match="source: damaged"):
        writer.add("x", StreamTensor(np.dtype(np.int32), (10,), blocks))
    assert os.listdir(tmp_path) == []
    for action in (writer.finish, lambda: writer.add("y", ArrayTensor(np.zeros(1)))):
        with pytest.raises(ConversionError, match="a writer that is closed"):
            action()


@pytest.mark.parametrize(
    ("dtype", "shape", "block", "message"),
    [
        (np.int32, (3,), np.zeros(2, np.int32), "2 rows, expected 3"),
        (np.int32, (3,), np.zeros(3, np.int64), r"a block int64\[3\], expected rows of int32\[3\]"),
        (np.int32, (3, 2), np.zeros((3, 1), np.int32), r"a block int32\[3, 1\]"),
        (object, (2,), np.array([b"a", "b"], object), "an element of type str, expected bytes"),
    ],
)
def test_blocks_that_contradict_are_refused(tmp_path: Path, dtype: Any, shape: Any, block: Any, message: str) -> None:
    with BundleWriter(tmp_path / "model") as writer, pytest.raises(ConversionError, match=f"tensor 'x': {message}"):
        writer.add("x", StreamTensor(np.dtype(dtype), shape, lambda rows: iter([block])))
    assert os.listdir(tmp_path) == []


def test_strings_that_change_between_reads_are_refused(tmp_path: Path) -> None:
    reads: list[int] = []

    def blocks(rows: int) -> Iterator[np.ndarray]:
        reads.append(rows)
        yield np.array([b"x" * len(reads)], object)

    with (
        BundleWriter(tmp_path / "model") as writer,
        pytest.raises(ConversionError, match="strings of 2 bytes when read"),
    ):
        writer.add("x", StreamTensor(np.dtype(object), (1,), blocks))


def test_invalid_names_and_dtypes_are_refused(tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "model") as writer:
        writer.add("x", ArrayTensor(np.zeros(1)))
        for name in ("", "x", "\0a"):
            with pytest.raises(ConversionError, match="a name that is empty or taken, expected a new one"):
                writer.add(name, ArrayTensor(np.zeros(1)))
        with pytest.raises(ConversionError, match="tensor 'y': dtype datetime64, expected one that TensorFlow has"):
            writer.add("y", ArrayTensor(np.zeros(1, "M8")))
        writer.finish()
    assert BundleReader(tmp_path / "model").names() == ["x"]


@pytest.mark.parametrize("name", ["model.index", "model.data-00000-of-00002"])
def test_existing_bundles_are_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"theirs")
    with pytest.raises(UsageError, match=f"{name}: exists, expected a prefix without files"):
        BundleWriter(tmp_path / "model")
    assert (tmp_path / name).read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConversionError, match="file"):
        BundleWriter(tmp_path / "file" / "model")
    assert os.listdir(tmp_path) == ["file"]


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from graph_tools.bundle import BundleWriter
from graph_tools.errors import ConversionError
from graph_tools.tensors import ArrayTensor
from tensorflow.core.protobuf import tensor_bundle_pb2
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with BundleWriter(Path(sys.argv[1])) as writer:
        writer.add("fits", ArrayTensor(np.zeros(1000, np.uint8)))
        writer.add("table", ArrayTensor(np.zeros(2 << 20, np.uint8)))
        writer.finish()
except ConversionError as error:
    print(error)
"""


def test_a_file_that_may_not_grow_leaves_nothing(tmp_path: Path) -> None:
    prefix = tmp_path / "new" / "model"
    run = subprocess.run([sys.executable, "-c", FULL, prefix], capture_output=True, text=True, check=True, timeout=300)
    assert (
        f"{prefix}: File too large after 1048576 bytes, expected room and permission for tensor 'table'" in run.stdout
    )
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "model")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._shards[0]._file)
    os.close(full)
    with pytest.raises(ConversionError, match=rf"model: {os.strerror(errno.ENOSPC)} after 0 bytes, .* tensor 'x'"):
        writer.add("x", ArrayTensor(np.zeros(10)))
    assert os.listdir(tmp_path) == []


def test_a_rename_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path / "model")
    writer.add("x", ArrayTensor(np.zeros(10)))
    (tmp_path / "model.index").mkdir()
    with pytest.raises(ConversionError, match=r"expected room and permission for an index of 1 tensors"):
        writer.finish()
    assert os.listdir(tmp_path) == ["model.index"]


def test_strings_are_joined_a_few_at_a_time(tf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_tools.bundle.writer._JOIN_BYTES", 10)
    monkeypatch.setattr("graph_tools.bundle.output_file._BLOCK_BYTES", 7)
    strings = np.array([b"s" * n for n in (3, 7, 1, 25, 0, 4, 6)], object)
    prefix = write(tmp_path / "model", {"x": strings})
    assert restored(tf, prefix, "x", tf.string).tolist() == strings.tolist()


@pytest.mark.slow
def test_tensorflow_reads_a_shard_beyond_4_gib(tf, tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        pytest.skip("the size of files is limited")
    block = np.zeros((1 << 20, 8), np.float32)
    block[:, 0] = 1

    def blocks(rows: int) -> Iterator[np.ndarray]:
        return iter([block] * 130)

    with BundleWriter(tmp_path / "model", shard_bytes=1 << 40) as writer:
        writer.add("big", StreamTensor(np.dtype(np.float32), (130 << 20, 8), blocks))
        writer.add("last", ArrayTensor(np.arange(10)))
        writer.finish()
    assert restored(tf, tmp_path / "model", "last", tf.int64).tolist() == list(range(10))
    (rows,) = tf.raw_ops.RestoreV2(
        prefix=str(tmp_path / "model"),
        tensor_names=["big"],
        shape_and_slices=[f"{130 << 20} 8 {(130 << 20) - 2},2:-"],
        dtypes=[tf.float32],
    )
    assert rows.numpy()[:, :2].tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize("shard_bytes", [1 << 40, 64])
def test_files_are_summed_while_they_are_written(tmp_path: Path, shard_bytes: int) -> None:
    arrays = {"a": np.arange(40.0), "b": np.array([b"x", b"", b"yy"], object), "c": np.arange(9)}
    for digest in (False, True):
        with BundleWriter(tmp_path / str(digest) / "model", shard_bytes=shard_bytes, digest=digest) as writer:
            for name, array in arrays.items():
                writer.add(name, ArrayTensor(array))
            writer.finish()
        files = list((tmp_path / str(digest)).iterdir()) if digest else []
        assert writer.digests == {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

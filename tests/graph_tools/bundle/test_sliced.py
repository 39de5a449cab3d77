# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_tools.bundle import BundleReader
from graph_tools.errors import UnreadableError

TABLE = np.arange(200 * 6, dtype=np.float32).reshape(200, 6)


@pytest.fixture
def save_slices(tf, save, merge):
    """Return a function that writes an array in slices (start, length per dimension), one bundle each, merged."""

    def write(array: np.ndarray, slices: list[list[tuple[int, int]]], merged: bool = True) -> Path:
        parts = []
        for index, extents in enumerate(slices):
            spec = ":".join("-" if length == -1 else f"{start},{length}" for start, length in extents)
            shape = " ".join(map(str, array.shape))
            part = array[tuple(slice(s, None if n == -1 else s + n) for s, n in extents)]
            tensor = tf.constant(part, tf.string if array.dtype == object else None)
            parts.append(save({"emb": tensor, f"other{index}": [index]}, {"emb": f"{shape} {spec}"}, f"part{index}"))
        return merge(parts)

    return write


@pytest.mark.parametrize(
    "slices",
    [
        [[(0, 90), (0, -1)], [(90, 110), (0, -1)]],
        [[(100, 100), (0, 6)], [(0, 100), (0, 6)]],
        [[(0, -1), (0, 2)], [(0, -1), (2, 4)]],
        [[(0, 70), (0, 3)], [(70, 130), (0, 3)], [(0, 150), (3, 3)], [(150, 50), (3, 3)]],
        [[(0, 200), (0, 6)]],
    ],
)
@pytest.mark.parametrize("rows", [7, 1000])
def test_a_partitioned_variable_is_one_tensor(tf, save_slices, slices: Any, rows: int) -> None:
    prefix = save_slices(TABLE, slices)
    reader = BundleReader(prefix)
    assert reader.names() == ["emb", *(f"other{i}" for i in range(len(slices)))]
    assert reader.entry("emb") == (TABLE.dtype, TABLE.shape)
    assert reader.byte_size("emb") == TABLE.nbytes
    reader.check_files()
    blocks = list(reader.tensor("emb").chunks(rows))
    assert max(map(len, blocks)) <= rows
    assert (np.concatenate(blocks) == TABLE).all()
    assert (reader.tensor("emb").read() == tf.train.load_checkpoint(str(prefix)).get_tensor("emb")).all()


def test_partitioned_variables_of_tensorflow_1_are_read(tf, tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = tf.compat.v1.get_variable(
            "emb",
            [103, 4],
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
            initializer=tf.compat.v1.random_normal_initializer(seed=1),
        )
        session.run(tf.compat.v1.global_variables_initializer())
        expected = session.run(tf.convert_to_tensor(table))
        prefix = Path(tf.compat.v1.train.Saver().save(session, str(tmp_path / "model")))
    reader = BundleReader(prefix)
    assert reader.names() == ["emb"]
    blocks = list(reader.tensor("emb").chunks(30))
    assert [len(block) for block in blocks] == [30, 5, 30, 4, 30, 4]
    assert (np.concatenate(blocks) == expected).all()


def test_a_long_variable_has_long_slice_keys(save_slices) -> None:
    array = np.arange(40000, dtype=np.int32)
    slices = [[(0, 63)], [(63, 1)], [(64, 1000)], [(1064, 8192)], [(9256, 30744)]]
    assert (BundleReader(save_slices(array, slices)).tensor("emb").read() == array).all()


def test_slices_of_strings(save_slices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_tools.bundle.strings.CHUNK_BYTES", 300)
    array = np.array([[b"s" * (i * j % 40) for j in range(3)] for i in range(20)], object)
    slices = [[(0, -1), (0, 1)], [(0, 11), (1, 2)], [(11, 9), (1, 2)]]
    assert BundleReader(save_slices(array, slices)).tensor("emb").read().tolist() == array.tolist()


def test_no_rows(save_slices) -> None:
    array = np.empty((0, 4), np.float32)
    assert BundleReader(save_slices(array, [[(0, -1), (0, 2)], [(0, -1), (2, 2)]])).tensor("emb").read().shape == (0, 4)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_grids(save_slices, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    cuts = [sorted({0, size} | data.draw(st.sets(st.integers(0, size), max_size=2))) for size in shape]
    grids = [[(a, b - a) for a, b in pairwise(edges)] for edges in cuts]
    slices: list[list[tuple[int, int]]] = [[]]
    for grid in grids:
        slices = [[*start, part] for start in slices for part in grid]
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    reader = BundleReader(save_slices(array, data.draw(st.permutations(slices))))
    assert reader.tensor("emb").read().tolist() == array.tolist()


def drop_slice(entry: Any) -> None:
    del entry.slices[1]


def repeat_slice(entry: Any) -> None:
    entry.slices.add().CopyFrom(entry.slices[0])


def move_slice(entry: Any) -> None:
    entry.slices[1].extent[0].start = 91


def flatten_slice(entry: Any) -> None:
    del entry.slices[0].extent[1]


def widen(entry: Any) -> None:
    entry.shape.dim[1].size = 7


def retype(entry: Any) -> None:
    entry.dtype = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_slice, r"slices that cover rows 90 to 199 in part or twice, expected each element of \[200, 6\] once"),
        (repeat_slice, "slices that cover rows 0 to 89 in part or twice"),
        (move_slice, r"no data for slice \[\(91, 110\), \(0, -1\)\], expected an entry for each slice"),
        (flatten_slice, "a slice of 1 dimensions, expected 2"),
        (widen, r"slice 0: float32\[90, 6\], expected float32\[90, 7\]"),
        (retype, r"slice 0: float32\[90, 6\], expected int32\[90, 6\]"),
    ],
)
def test_slices_that_contradict_are_refused(save_slices, edit_index, change: Any, message: str) -> None:
    prefix = save_slices(TABLE, [[(0, 90), (0, -1)], [(90, 110), (0, -1)]])
    edit_index(prefix, b"emb", change)
    with pytest.raises(UnreadableError, match=f"tensor 'emb'.*{message}"):
        BundleReader(prefix).tensor("emb")


def test_a_slice_beyond_the_shape_is_refused(save_slices, edit_index) -> None:
    prefix = save_slices(TABLE, [[(0, 90), (0, -1)], [(90, 110), (0, -1)]])
    edit_index(prefix, b"emb", lambda entry: setattr(entry.shape.dim[0], "size", 90))
    with pytest.raises(UnreadableError, match="a slice beyond its bounds"):
        BundleReader(prefix).tensor("emb")


def test_a_changed_byte_of_a_slice_is_found(save_slices) -> None:
    prefix = save_slices(TABLE, [[(0, 90), (0, -1)], [(90, 110), (0, -1)]])
    path = Path(f"{prefix}.data-00001-of-00002")
    data = bytearray(path.read_bytes())
    data[50] ^= 4
    path.write_bytes(data)
    reader = BundleReader(prefix)
    for read in (lambda: reader.verify("emb"), lambda: reader.tensor("emb").read()):
        with pytest.raises(UnreadableError, match="tensor 'emb', slice 1: checksum"):
            read()


def test_a_missing_shard_of_a_slice_is_named(save_slices) -> None:
    prefix = save_slices(TABLE, [[(0, 90), (0, -1)], [(90, 110), (0, -1)]])
    Path(f"{prefix}.data-00001-of-00002").unlink()
    with pytest.raises(UnreadableError, match=r"data-00001-of-00002: No such file.*tensor 'emb', slice 1"):
        BundleReader(prefix).check_files()

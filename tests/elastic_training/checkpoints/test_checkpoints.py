# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training.checkpoints.files import Reader


def _table(**changes: Any) -> et.Table:
    settings = {"name": "user", "dim": 3, "optimizer": et.Adam(0.1), "admission": et.CountFilter(2)}
    return et.Table(et.TableConfig(**{**settings, **changes}))


def _train(table: et.Table, keys: Any) -> None:
    """Look keys up as training does, and insert rows of those that have one, so that all parts change."""
    table.lookup(keys, training=True)
    kinds = table.read(keys).meta.numpy()[:, 2]
    keys = np.asarray(keys)[kinds == 1]
    values = np.random.default_rng(len(keys)).normal(size=(len(keys), 10)).astype(np.float32)
    if len(keys):
        table.insert(keys, values[:, :3], values[:, 3:])


def _state(table: et.Table) -> dict[Any, tuple[Any, ...]]:
    keys, rows = table.export()
    columns = (rows.weights.numpy(), rows.slots.numpy(), rows.meta.numpy())
    return {key: tuple(column[i].tobytes() for column in columns) for i, key in enumerate(keys.tolist())}


def test_restores_rows_counters_and_variables(tmp_path: Path) -> None:
    table, variable = _table(), tf.Variable([1.0, 2.0])
    checkpoints = et.Checkpoints(tmp_path, table=table, variable=variable)
    expected = []
    for step in range(4):
        _train(table, np.arange(100 if step == 0 else 20) % 60)
        table.evict(np.arange(step, step + 2))
        variable.assign_add([1.0, 0.5])
        checkpoints.save()
        expected.append((_state(table), variable.numpy(), table.stats()["occurrences"]))
    bases = [Reader(tmp_path / name).manifest["base"] for name in checkpoints.names()]
    assert bases == [None, *checkpoints.names()[:-1]]
    rows = [Reader(tmp_path / name).manifest["tables"]["user"]["rows"] for name in checkpoints.names()]
    assert rows[1] < rows[0]
    for name, (state, value, occurrences) in zip(checkpoints.names(), expected, strict=True):
        other, of = _table(), tf.Variable([0.0, 0.0])
        other.insert([777], np.ones((1, 3)))  # what a table had is gone
        assert et.Checkpoints(tmp_path, table=other, variable=of).restore(tmp_path / name) == tmp_path / name
        assert _state(other) == state
        np.testing.assert_array_equal(of.numpy(), value)
        assert other.stats()["occurrences"] == occurrences
    # The first one after that has all rows, since it cannot know what changed.
    checkpoints.restore()
    checkpoints.save()
    assert Reader(checkpoints.latest()).manifest["base"] is None


def test_string_keys_candidates_and_released_rows(tmp_path: Path) -> None:
    config = {"key": "string", "optimizer": et.GroupAdagrad(0.1, l21=0.1), "admission": et.CountFilter(3)}
    table = _table(**config)
    table.insert(["", "ä", "long" * 50], np.ones((3, 3)), meta=[[5, 6, 1], [7, 8, 2], [9, 2, 3]])
    checkpoints = et.Checkpoints(tmp_path, table=table)
    checkpoints.save()
    table.evict(["", "long" * 50])
    checkpoints.save()
    for name, count in zip(checkpoints.names(), (3, 1), strict=True):
        other = _table(**config)
        et.Checkpoints(tmp_path, table=other).restore(tmp_path / name)
        assert len(_state(other)) == count
    assert _state(other) == _state(table)


def test_cut_is_of_one_instant_while_threads_train(tmp_path: Path) -> None:
    table = _table(admission=et.AlwaysAdmit())
    steps = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    checkpoints = et.Checkpoints(tmp_path, full_every=3, memory_bytes=1 << 16, table=table, a=steps[0], b=steps[1])
    stop = threading.Event()

    def train(thread: int) -> None:
        keys = np.arange(3000) + 10_000 * thread
        for step in range(1, 100_000):
            if stop.is_set():
                return
            with checkpoints.step():
                table.insert(keys[:1500], np.full((1500, 3), step), np.full((1500, 7), step))
                table.insert(keys[1500:], np.full((1500, 3), step), np.full((1500, 7), step))
                steps[thread].assign(step)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        while min(int(step) for step in steps) < 3:
            pass
        for _ in range(4):
            checkpoints.save(wait=False)
        checkpoints.wait()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for name in checkpoints.names():
        other, of = _table(admission=et.AlwaysAdmit()), [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
        et.Checkpoints(tmp_path, table=other, a=of[0], b=of[1]).restore(tmp_path / name)
        for thread in range(2):
            rows = other.read(np.arange(3000) + 10_000 * thread)
            assert int(of[thread]) >= 3
            assert set(rows.weights.numpy().ravel()) == set(rows.slots.numpy().ravel()) == {float(of[thread])}


def test_other_number_of_segments(tmp_path: Path) -> None:
    # A new table has 16 segments, which split at 32,768 rows.
    config = {"dim": 1, "optimizer": et.SGD(0.1), "admission": et.AlwaysAdmit()}
    table, keys = _table(**config), np.arange(700_000)
    table.insert(keys, keys[:, None].astype(np.float32))
    et.Checkpoints(tmp_path, table=table).save()
    table = _table(**config)
    et.Checkpoints(tmp_path, table=table).restore()
    assert table.size() == len(keys)
    np.testing.assert_array_equal(table.read(keys).weights.numpy()[:, 0], keys)


@pytest.mark.parametrize(
    ("name", "cut", "message"),
    [
        ("tables/0000/part-00000/values.bin", -3, "values.bin: torn: .* bytes, expected"),
        ("tables/0000/part-00000/keys.bin", 9, "keys.bin: torn: its checksum is"),
        ("dense.bin", None, "dense.bin: no such file, expected 4 bytes"),
        ("manifest.json", 20, "manifest.json: torn"),
        ("manifest.json", -20, "manifest.json: torn"),
    ],
)
def test_torn_files_are_named_and_change_nothing(tmp_path: Path, name: str, cut: int | None, message: str) -> None:
    table, variable = _table(), tf.Variable(1.0)
    table.insert([1, 2, 3], np.ones((3, 3)))
    checkpoints = et.Checkpoints(tmp_path, table=table, variable=variable)
    path = checkpoints.save() / name
    data = path.read_bytes()
    path.unlink()
    if cut is not None:
        path.write_bytes(data[:cut] if cut < 0 else data[:cut] + bytes([data[cut] ^ 8]) + data[cut + 1 :])
    table.insert([9], np.ones((1, 3)))
    state = _state(table)
    with pytest.raises(ValueError, match=message):
        checkpoints.restore()
    assert _state(table) == state


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Let the operating system refuse larger files, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_disk_leaves_earlier_checkpoints(tmp_path: Path) -> None:
    table = _table(admission=et.AlwaysAdmit())
    checkpoints = et.Checkpoints(tmp_path, table=table)
    table.insert([1], np.ones((1, 3)))
    first = checkpoints.save()
    state = _state(table)
    table.insert(np.arange(2, 5000), np.ones((4998, 3)))
    with _largest_file(50_000):
        with pytest.raises(OSError, match="File too large"):
            checkpoints.save()
        checkpoints.save(wait=False)
        with pytest.raises(OSError, match="File too large"):
            checkpoints.wait()
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    # What the failed ones took is not lost: the next has all rows.
    checkpoints.save()
    other = _table(admission=et.AlwaysAdmit())
    restored = et.Checkpoints(tmp_path, table=other)
    restored.restore()
    assert _state(other) == _state(table)
    restored.restore(first)
    assert _state(other) == state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 4}, "table 'user': dim is 3, expected 4"),
        ({"optimizer": et.Adagrad(0.1)}, "table 'user': optimizer is 'adam', expected 'adagrad'"),
        ({"optimizer": et.GroupAdam(0.1, l21=0.1)}, "table 'user': floats of optimizer state a row is 7, expected"),
        ({"key": "string"}, "table 'user': key is 'int64', expected 'string'"),
        ({"name": "item"}, "it has no table 'item'"),
    ],
)
def test_other_tables_are_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    et.Checkpoints(tmp_path, table=_table()).save()
    table = _table(**changes)
    with pytest.raises(ValueError, match=message):
        et.Checkpoints(tmp_path, table=table).restore()


def test_other_variables_are_refused_by_name(tmp_path: Path) -> None:
    et.Checkpoints(tmp_path, a=tf.Variable([1.0])).save()
    with pytest.raises(ValueError, match=r"variable 0 of 'a' is float32 \[1\], expected float32 \[2\]"):
        et.Checkpoints(tmp_path, a=tf.Variable([1.0, 2.0])).restore()
    with pytest.raises(ValueError, match="it has 'a', expected one of 'b'"):
        et.Checkpoints(tmp_path, b=tf.Variable([1.0])).restore()


def test_filter_state_is_restored_or_counts_anew(tmp_path: Path) -> None:
    filters = et.CountingFilter(threshold=3, expected_keys=1000)
    table = _table(admission=filters)
    table.lookup([5], training=True)
    et.Checkpoints(tmp_path, table=table).save()
    for admission, lookups in ((filters, 2), (et.CountFilter(3), 3)):
        other = _table(admission=admission)
        et.Checkpoints(tmp_path, table=other).restore()
        for _ in range(lookups):
            assert other.size() == 0
            other.lookup([5], training=True)
        assert other.size() == 1


def test_old_checkpoints_are_removed_unless_others_need_them(tmp_path: Path) -> None:
    table = _table()
    checkpoints = et.Checkpoints(tmp_path, keep=2, full_every=3, table=table)
    numbers = []
    for step in range(7):
        table.insert([step], np.ones((1, 3)))
        checkpoints.save()
        numbers.append([int(name[-2:]) for name in checkpoints.names()])
    assert numbers == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [4, 5], [4, 5, 6], [4, 5, 6, 7]]
    assert et.Checkpoints(tmp_path / "empty", table=table).restore() is None


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    table = _table()
    with pytest.raises(ValueError, match="nothing to save"):
        et.Checkpoints(tmp_path)
    with pytest.raises(ValueError, match="keep is 0"):
        et.Checkpoints(tmp_path, keep=0, table=table)
    with pytest.raises(ValueError, match="two tables have the name 'user'"):
        et.Checkpoints(tmp_path, a=table, b=_table()).save()
    with pytest.raises(ValueError, match="has no variables"):
        et.Checkpoints(tmp_path, a=3).save()
    checkpoints = et.Checkpoints(tmp_path, table=table)
    with checkpoints.step(), pytest.raises(RuntimeError, match="between two steps"):
        checkpoints.save()
    with pytest.raises(ValueError, match="neither every_steps nor every_s"):
        checkpoints.callback()
    # A failed save leaves the table free for the next one.
    checkpoints.save()

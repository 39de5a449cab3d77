# SPDX-License-Identifier: Apache-2.0
"""Test that the changes between two tables, laid over the first, give the lookups of the second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_tools.errors import ConversionError
from graph_tools.graph import Graph
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.store.delta import Delta
from graph_tools.store.segment import Segment
from graph_tools.store.segment_writer import write_segment
from graph_tools.store.spill import SpillFolder
from graph_tools.tables.blocks import as_int64
from graph_tools.tables.overlay import overlay
from graph_tools.tables.table_diff import diff_tables, equal_content
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.delta_segments import header
from helpers.models.sparse_table_models import make_table

_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.sampled_from([-(1 << 63), -2, -1, 0, 1, 2, 3, 9, (1 << 63) - 1]),
    "int32": st.sampled_from([-(1 << 31), -2, 0, 1, 2, 3, (1 << 31) - 1]),
    "uint64": st.sampled_from([0, 1, 2, 3, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    "object": st.sampled_from([b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"\xff"]),
}
_NUMBERS = st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), 0.5])


def _array(keys: list[Any], dtype: str) -> np.ndarray:
    made = np.empty(len(keys), dtype)
    made[:] = keys
    return made


@st.composite
def _table(draw: st.DrawFn, kind: str, dtype: str) -> SparseTable:
    keys = draw(st.lists(_KEYS[kind], unique=True, max_size=9))
    numbers = draw(st.lists(_NUMBERS, min_size=2 * len(keys), max_size=2 * len(keys)))
    cut = draw(st.integers(0, len(keys)))
    rows = np.array(numbers, dtype).reshape(len(keys), 2)
    ignored = draw(st.lists(st.sampled_from(keys), unique=True, max_size=3)) if keys else []
    parts = [
        Part(
            ArrayTensor(_array(keys[part], kind)),
            ArrayTensor(rows[part]),
            ignored=_array(ignored, kind) if ignored else None,
        )
        for part in (slice(0, cut), slice(cut, None))
    ]
    absent = Absent(np.array([[draw(_NUMBERS)] * 2, [1.0, 2.0]], dtype), "the test")
    return SparseTable("table", "tfplus", np.dtype(kind), 2, np.dtype(dtype), parts, absent)


def _lookups(table: SparseTable) -> dict[Any, bytes]:
    """Return the bytes of the row of each key that lookups find."""
    found: dict[Any, bytes] = {}
    for part in table.parts:
        keys = as_int64(part.keys.read()).tolist()
        ignored = set() if part.ignored is None else set(as_int64(part.ignored).tolist())
        for key, row in zip(keys, part.rows.read(), strict=True):
            if key not in ignored:
                assert key not in found
                found[key] = np.asarray(row, np.float32).tobytes()
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changes_over_the_old_table_give_the_lookups_of_the_new_one(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(_KEYS)))
    dtype = data.draw(st.sampled_from(["float32", "float16"]))
    old, new = (data.draw(_table(kind, dtype)) for _ in range(2))
    limit = data.draw(st.sampled_from([1 << 30, 300, 1]))
    path = tmp_path / "a.delta"
    path.unlink(missing_ok=True)
    with SpillFolder(tmp_path) as spill:
        # The writer's check refuses keys that do not ascend, or that are changed and deleted.
        write_segment(path, header(), Delta((diff_tables(old, new, spill, limit),)))
    delta = Segment(path).delta
    model = Model(Path("model"), "GraphDef", Graph(), {}, sparse_tables={"table": old})
    overlay(model, delta)
    applied = model.sparse_tables["table"]
    assert _lookups(applied) == _lookups(new)
    assert applied.absent.rows is not None
    assert applied.absent.rows.tobytes() == new.absent.rows.tobytes()
    (changes,) = delta.tables or (None,)
    if changes is not None:
        before, now = _lookups(old), _lookups(new)
        assert changes.changed.read().tolist() == sorted(key for key in now if before.get(key) != now[key])
        assert changes.deleted.read().tolist() == sorted(before.keys() - now.keys())


def test_ranges_hold_no_more_than_the_limit_permits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph_tools.tables import table_diff

    keys = np.random.default_rng(0).permutation(100_000).astype(np.int64)
    old, new = (make_table(keys, np.full((len(keys), 4), value, np.float32)) for value in (0, 1))
    held = []
    load = table_diff._load

    def watch(*arguments: Any) -> Any:
        found = load(*arguments)
        held.append(len(found[0]))
        return found

    monkeypatch.setattr(table_diff, "_load", watch)
    with SpillFolder(tmp_path) as spill:
        delta = diff_tables(old, new, spill, 1_000_000)
        assert delta.changed.shape == (100_000,)
    # Two tables of 100,000 keys need 56 bytes for each key, so there are 12 ranges.
    assert len(held) == 24
    assert max(held) < 1.05 * 100_000 / 12
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 3}, r"rows float32\[2\], expected keys int64, rows float32\[3\] as before"),
        ({"key_dtype": np.dtype(np.int32)}, "keys int64"),
        ({"absent": Absent(np.ones((3, 2), np.float32), "")}, "2 default rows, which are not all zeros, after 3"),
        ({"absent": Absent(None, "")}, "2 default rows, which are not all zeros, after 0"),
    ],
)
def test_tables_of_another_form_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    absent = np.ones((2, 2), np.float32)
    old, new = (make_table(np.arange(3), np.zeros((3, 2), np.float32), absent) for _ in range(2))
    for name, value in change.items():
        setattr(old, name, value)
    with SpillFolder(tmp_path) as spill, pytest.raises(ConversionError, match=message):
        diff_tables(old, new, spill, 1 << 20)


def test_default_rows_of_zeros_equal_none(tmp_path: Path) -> None:
    old = make_table(np.arange(3), np.zeros((3, 2), np.float32))
    new = make_table(np.arange(3), np.zeros((3, 2), np.float32), np.zeros((4, 2), np.float32))
    with SpillFolder(tmp_path) as spill:
        assert diff_tables(old, new, spill, 1 << 20).empty


def test_content_is_compared_bit_by_bit() -> None:
    zero, minus = ArrayTensor(np.zeros(3, np.float32)), ArrayTensor(-np.zeros(3, np.float32))
    assert equal_content(zero, zero)
    assert not equal_content(zero, minus)
    scalar = ArrayTensor(np.array(np.nan, np.float64))
    assert equal_content(scalar, scalar)

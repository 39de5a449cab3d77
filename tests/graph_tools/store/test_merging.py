# SPDX-License-Identifier: Apache-2.0
"""Test that merged deltas lead to the same state as the deltas one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_tools.errors import ConversionError
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.merging import merge_deltas
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.delta_segments import floats, int_keys, strings, table

_ROWS = 6


@dataclass
class _State:
    """The state of a model as plain Python values."""

    rows: dict[tuple[str, Any], bytes] = field(default_factory=dict)
    defaults: dict[tuple[str, int], bytes] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)

    def apply(self, delta: Delta) -> None:
        for name, tensor in delta.variables.items():
            self.variables[name] = tensor.read().copy()
        for entry in delta.tables:
            for key, row in zip(entry.changed.read().tolist(), entry.rows.read(), strict=True):
                if entry.key_kind == "row_number":
                    self.variables[entry.name][key] = row
                else:
                    self.rows[entry.name, key] = row.tobytes()
            for key in entry.deleted.read().tolist():
                self.rows.pop((entry.name, key), None)
            for number, row in zip(
                entry.default_numbers.tolist(), () if entry.default_rows is None else entry.default_rows, strict=True
            ):
                self.defaults[entry.name, number] = row.tobytes()
        self.streams |= delta.streams


@st.composite
def _deltas(draw: st.DrawFn) -> Delta:
    tables = []
    seed = draw(st.integers(1, 1 << 30))
    for name, make, keys in (
        ("ids", int_keys, st.integers(-3, 3)),
        ("words", strings, st.sampled_from([b"", b"\0", b"a", b"ab", b"b"])),
    ):
        chosen = draw(st.lists(keys, unique=True, max_size=5))
        cut = draw(st.integers(0, len(chosen)))
        tables.append(table(name, make(*sorted(chosen[:cut])), 2, make(*sorted(chosen[cut:])), seed=seed))
    variables = {}
    if draw(st.booleans()):
        numbers = draw(st.lists(st.integers(0, _ROWS - 1), unique=True, max_size=_ROWS))
        tables.append(table("matrix", int_keys(*sorted(numbers)), 3, key_kind="row_number", seed=seed))
    elif draw(st.booleans()):
        variables["matrix"] = ArrayTensor(floats(_ROWS, 3, seed=seed))
    return Delta(
        tuple(entry for entry in tables if not entry.empty),
        variables,
        draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), max_size=2)),
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(_deltas(), min_size=1, max_size=5))
def test_merged_deltas_lead_to_the_same_state(deltas: list[Delta]) -> None:
    one, many = _State(), _State()
    for state in (one, many):
        # Keys of the export, which deltas may delete.
        state.rows = {("ids", 0): b"old", ("words", b"a"): b"old"}
        state.variables = {"matrix": np.zeros((_ROWS, 3), np.float32)}
    for delta in deltas:
        many.apply(delta)
    one.apply(merge_deltas(deltas))
    assert (one.rows, one.streams) == (many.rows, many.streams)
    assert one.variables["matrix"].tobytes() == many.variables["matrix"].tobytes()


def test_last_default_rows_remain() -> None:
    def with_defaults(*numbers: int, seed: int) -> Delta:
        rows = floats(len(numbers), 2, seed=seed)
        entry = table("t", int_keys(), 2, default_numbers=np.array(numbers, np.uint32), default_rows=rows)
        return Delta((entry,))

    (merged,) = merge_deltas([with_defaults(1, 3, seed=1), with_defaults(0, 3, seed=2)]).tables
    assert merged.default_numbers.tolist() == [0, 1, 3]
    assert merged.default_rows is not None
    first, second = floats(2, 2, seed=1), floats(2, 2, seed=2)
    np.testing.assert_array_equal(merged.default_rows, [second[0], first[0], second[1]])


def test_values_of_a_variable_replace_earlier_rows_only() -> None:
    value = floats(3, 2, seed=1)
    rows = [Delta((table("v", int_keys(number), 2, key_kind="row_number", seed=number + 5),)) for number in (0, 2)]
    merged = merge_deltas([rows[0], Delta((), {"v": ArrayTensor(value)}), rows[1]])
    assert not merged.tables
    expected = value.copy()
    expected[2] = floats(1, 2, seed=7)
    np.testing.assert_array_equal(merged.variables["v"].read(), expected)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            Delta((table("t", int_keys(1), 2),)),
            Delta((table("t", int_keys(1), 3),)),
            "table 't': keys of kind int64 and dim 3, expected int64 and dim 2",
        ),
        (
            Delta((table("t", int_keys(1), 2),)),
            Delta((table("t", strings(b""), 2),)),
            "table 't': keys of kind string and dim 2, expected int64 and dim 2",
        ),
        (
            Delta((), {"v": ArrayTensor(floats(3))}),
            Delta((), {"v": ArrayTensor(floats(4))}),
            r"variable 'v': \[4\], expected \[3\]",
        ),
        (
            Delta((), {"v": ArrayTensor(floats(3, 2))}),
            Delta((table("v", int_keys(3), 2, key_kind="row_number"),)),
            r"'v': rows of dim 2 by row_number, the last of them 3, expected rows of a variable \[3, 2\]",
        ),
        (
            Delta((), {"v": ArrayTensor(floats(3, 2))}),
            Delta((table("v", int_keys(1), 2),)),
            r"'v': rows of dim 2 by int64, the last of them none, expected rows of a variable \[3, 2\]",
        ),
        (
            Delta((), {"v": ArrayTensor(np.array(1, np.float32))}),
            Delta((table("v", int_keys(0), 1, key_kind="row_number"),)),
            r"expected rows of a variable \[\]",
        ),
    ],
)
def test_deltas_that_contradict_each_other_are_refused(first: Delta, second: Delta, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        merge_deltas([first, second])


def test_one_delta_stays_as_it_is() -> None:
    entry: TableDelta = table("t", int_keys(1, 2), 2, int_keys(3))
    assert merge_deltas([Delta((entry,))]).tables == (entry,)

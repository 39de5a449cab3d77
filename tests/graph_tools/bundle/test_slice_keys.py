# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_tools.bundle.slice_keys import FULL, _signed, is_slice_key, slice_key
from graph_tools.bundle.table_reader import read_table


@pytest.mark.parametrize(
    ("name", "extents"),
    [
        ("a/b", [(1, 5), (0, FULL)]),
        ("emb", [(63, 64), (0, FULL)]),
        ("emb", [(8191, 8192)]),
        ("emb", [(8192, 1 << 20)]),
        ("emb", [(1 << 20, 1 << 27), (0, FULL), (0, FULL)]),
        ("ÿ\u0100", [(1 << 40, 1)]),
    ],
)
def test_keys_are_those_of_tensorflow(tf, save, name: str, extents: list[tuple[int, int]]) -> None:
    # A last dimension of size 0: no data, whatever the slice's place.
    shape = [start + length if length != FULL else 0 for start, length in extents] + [0]
    spec = ":".join("-" if length == FULL else f"{start},{length}" for start, length in extents) + ":-"
    data = tf.zeros([length if length != FULL else 0 for _, length in extents] + [0], tf.int8)
    prefix = save({name: data}, {name: " ".join(map(str, shape)) + " " + spec})
    keys = [key for key, _ in read_table(prefix.with_suffix(".index"))]
    assert slice_key(name.encode(), [*extents, (0, FULL)]) in keys


def test_names_with_special_bytes() -> None:
    assert slice_key(b"a\0b\xff", []) == b"\0a\0\xffb\xff\0\0\1\0"


def test_slices_are_told_from_names() -> None:
    assert is_slice_key(slice_key(b"a", [(0, 1)]))
    assert not is_slice_key(b"a")


@settings(max_examples=500)
@given(left=st.integers(-(2**63), 2**63 - 1), right=st.one_of(st.integers(-300, 300), st.integers(-(2**63), 2**63 - 1)))
def test_ordered_encoding_of_numbers_keeps_their_order(left: int, right: int) -> None:
    assert (left < right) == (_signed(left) < _signed(right))
    assert len(_signed(left)) <= 10

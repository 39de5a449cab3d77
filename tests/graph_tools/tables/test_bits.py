# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_tools.tables.bits import Bits


@given(st.lists(st.lists(st.booleans(), max_size=40), max_size=8), st.data())
def test_bits_can_be_set_in_pieces_of_any_length(pieces: list[list[bool]], data: st.DataObject) -> None:
    whole = np.array([block for piece in pieces for block in piece], bool)
    bits = Bits(len(whole))
    begin = 0
    for piece in pieces:
        bits.set(begin, np.array(piece, bool))
        begin += len(piece)
    assert bits.count == whole.sum()
    assert bits.all == whole.all()
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, len(whole)))
    np.testing.assert_array_equal(bits.get(first, last), whole[first:last])


@pytest.mark.parametrize("begin", [0, 3, 8])
def test_bits_already_set_stay_and_count_once(begin: int) -> None:
    bits = Bits(20)
    bits.set(begin, np.array([True, False, True]))
    bits.set(begin, np.array([True, True, False]))
    assert bits.get(begin, begin + 4).tolist() == [True, True, True, False]
    assert bits.count == 3

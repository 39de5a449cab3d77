# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_tools.bundle import varints

INTEGERS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


@given(values=st.lists(INTEGERS, max_size=30))
def test_arrays_and_single_values_agree(values: list[int]) -> None:
    raw = b"".join(map(varints.encode, values))
    array = np.array(values, np.int64)
    assert varints.encode_array(array).tobytes() == raw
    assert varints.decode_array(np.frombuffer(raw, np.uint8)).tolist() == values
    position = 0
    for value in values:
        found, position = varints.decode(raw, position)
        assert found == value
    assert position == len(raw)


def test_the_bytes_of_the_standard() -> None:
    assert varints.encode(300) == b"\xac\x02"


def test_integers_without_an_end_are_refused() -> None:
    for raw in (b"", b"\x80", b"\xff" * 20):
        with pytest.raises(ValueError, match="does not end"):
            varints.decode(raw, 0)
    with pytest.raises(ValueError, match="does not end"):
        varints.decode_array(np.frombuffer(b"\xff" * 9 + b"\x01", np.uint8))

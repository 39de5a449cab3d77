# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_tools.bundle.snappy import decompress


def test_decompresses_what_tensorflow_compresses(compress) -> None:
    random = np.random.default_rng(0)
    texts = [b"", b"a", b"ab" * 5000, random.bytes(100_000), b"".join(b"row %d of many\n" % i for i in range(20000))]
    texts.append(random.bytes(70_000) * 2)
    for text in texts:
        assert decompress(compress(text)) == text


@settings(max_examples=50, deadline=None)
@given(pieces=st.lists(st.tuples(st.binary(min_size=1, max_size=90), st.integers(1, 200)), max_size=10))
def test_decompresses_anything(compress, pieces: list[tuple[bytes, int]]) -> None:
    text = b"".join(piece * count for piece, count in pieces)
    assert decompress(compress(text)) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "an integer that does not end"),
        (b"\x05\x08abc", "3 bytes when decompressed, expected 5"),
        (b"\x03\x0cabc", "the compressed data ends at byte 5, expected 4 bytes from 2"),
        (b"\x08\x08abc\x01\x04", "a copy from 4 bytes back, expected at most 3"),
        (b"\x08\x08abc\x01\x00", "a copy from 0 bytes back"),
        (b"\x01\x08abc", "3 bytes when decompressed, expected 1"),
    ],
)
def test_damaged_data_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompress(data)

# SPDX-License-Identifier: Apache-2.0
"""Codes in NumPy, in a graph and in elastic_training are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from graph_tools.errors import UsageError
from graph_tools.tables.row_codes import BinaryCode, Hashes, QuotientRemainder, RowCode

CODES = [(10, 3, "succession"), (10, 3, "skip"), (39, 3, "succession"), (64, 64, "skip"), (1, 1, "skip")]
KEYS = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 300)


@pytest.mark.parametrize(("bits", "blocks", "cut"), CODES)
def test_codes_are_those_of_elastic_training(bits: int, blocks: int, cut: str) -> None:
    code, trained = BinaryCode(bits, blocks, cut), et.BinaryCode(bits, blocks, cut)
    assert (code.positions, code.sizes) == (trained.positions(), list(trained.sizes))
    assert code.offsets == list(trained.offsets)
    _have_equal_places(code, trained)


def _have_equal_places(code: RowCode, trained: Any) -> None:
    words = np.array([b"", b"a", "ä".encode(), b"x" * 99], object)
    for keys in (KEYS, KEYS.view(np.uint64), KEYS.astype(np.int32), words):
        given = tf.constant(keys.view(np.int64) if keys.dtype == np.uint64 else keys)
        places = trained.places(given if given.dtype == tf.string else tf.cast(given, tf.int64))
        for found, expected, size in zip(code.places(keys), places, code.sizes, strict=True):
            np.testing.assert_array_equal(found, expected)
            assert (found >= 0).all()
            assert (found < size).all()


def test_hashes_and_divisions_are_those_of_elastic_training() -> None:
    _have_equal_places(Hashes(3, 1009), et.Hashes(1009, count=3))
    _have_equal_places(QuotientRemainder(40, 77), et.QuotientRemainder(40, 77))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((65, 3), "--bits 65: expected 1 to 64"),
        ((8, 9), "--blocks 9: expected 1 to 8"),
        ((9, 6), "leaves a block"),
        ((64, 2), "a block would have 32 bits"),
        ((8, 2, "steps"), "--cut steps"),
    ],
)
def test_codes_without_rows_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BinaryCode(*arguments)


def test_codes_of_too_many_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="--hashes 65x10: expected 1 to 64"):
        Hashes(65, 10)
    with pytest.raises(UsageError, match="--quotient-remainder 0x10"):
        QuotientRemainder(0, 10)

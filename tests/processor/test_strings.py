# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import processor
from processor import _strings

ELEMENTS = st.one_of(st.binary(max_size=5), st.text(max_size=5), st.binary(max_size=4).map(bytearray))


def encoded(element: bytes | bytearray | str) -> bytes:
    return element.encode() if isinstance(element, str) else bytes(element)


def taken_apart(block: bytes, offsets: np.ndarray) -> list[bytes]:
    return [block[begin:end] for begin, end in itertools.pairwise(offsets)]


@given(st.lists(st.lists(ELEMENTS, max_size=6), min_size=1, max_size=4))
def test_join_keeps_every_element(columns: list[list[bytes | str | bytearray]]) -> None:
    flat = [element for column in columns for element in column]
    try:
        expected = [encoded(element) for element in flat]
    except UnicodeEncodeError:
        with pytest.raises(processor.InvalidArgumentError):
            _strings.join([("x", column) for column in columns])
        return
    block, offsets = _strings.join([("x", column) for column in columns])
    assert offsets.dtype == np.int64
    assert taken_apart(block, offsets) == expected


@pytest.mark.parametrize(
    "elements",
    [
        [],
        [b""],
        [""],
        [b"", b""],
        [b"\0"],
        ["a\0b", "c"],
        [b"\0\0", b"x\0"],
        ["ü", "日本"],
        [b"a", "ü"],
        ["a", b"\xff"],
    ],
)
def test_join_edge_cases(elements: list[bytes | str]) -> None:
    block, offsets = _strings.join([("x", elements)])
    assert taken_apart(block, offsets) == [encoded(element) for element in elements]


def test_join_takes_bytes_of_a_wide_buffer() -> None:
    wide = memoryview(np.array([1, 2], np.int32))
    block, offsets = _strings.join([("x", [wide, b"a"])])
    assert taken_apart(block, offsets) == [bytes(wide), b"a"]


@pytest.mark.parametrize("wrong", [None, 1, 1.5, [b"a"], {}])
def test_join_names_the_input_of_a_wrong_element(wrong: object) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=r"input 'color'.*expected bytes or str"):
        _strings.join([("fine", [b"a"]), ("color", [b"a", wrong])])


def test_join_names_the_input_of_text_without_utf8() -> None:
    with pytest.raises(processor.InvalidArgumentError, match=r"input 'color'.*UTF-8"):
        _strings.join([("fine", ["a"]), ("color", ["\ud800"])])


def test_fixed_width_of_bytes_is_the_same_memory() -> None:
    array = np.array([b"ab", b"c"])
    assert _strings.as_fixed_width(array) is array


def test_fixed_width_of_a_column_is_contiguous() -> None:
    column = np.array([[b"ab", b"c"], [b"d", b"ef"]])[:, 1]
    fixed = _strings.as_fixed_width(column)
    assert fixed is not None
    assert fixed.flags.c_contiguous
    assert fixed.tolist() == [b"c", b"ef"]


@pytest.mark.parametrize("shape", [(4,), (2, 2), (0,), ()])
def test_fixed_width_of_ascii_text(shape: tuple[int, ...]) -> None:
    text = np.array(["a", "bcd", "", "e"])[: int(np.prod(shape))].reshape(shape)
    fixed = _strings.as_fixed_width(text)
    assert fixed is not None
    assert fixed.dtype.kind == "S"
    assert fixed.shape == shape
    assert fixed.tolist() == np.char.encode(text).tolist()


def test_fixed_width_leaves_other_text_to_the_lists() -> None:
    assert _strings.as_fixed_width(np.array(["ü"])) is None
    assert _strings.as_fixed_width(np.empty(3, "S0").view()) is None or np.empty(3, "S0").itemsize


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (b"a", ()),
        ("a", ()),
        ([], (0,)),
        ([b"a", "b"], (2,)),
        ([[b"a"], [b"b"]], (2, 1)),
        ((b"a",), (1,)),
        (np.array([["a", "b"]], object), (1, 2)),
    ],
)
def test_as_list_keeps_the_shape(value: object, shape: tuple[int, ...]) -> None:
    elements, found = _strings.as_list("x", value)
    assert found == shape
    assert len(elements) == int(np.prod(shape))

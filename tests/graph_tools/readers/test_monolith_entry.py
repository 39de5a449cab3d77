# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_tools.readers import monolith_entry
from graph_tools.readers.monolith_entry import BadEntryError, parse_entries, parse_entry
from graph_tools.readers.tfrecord import Records
from helpers.models import sparse_files

FLOATS = st.floats(width=32, allow_nan=False)


def records(messages: list[bytes], first: int = 0, between: bytes = b"\x15\x00") -> Records:
    """A batch of messages with other bytes between them."""
    lengths = np.array([len(message) for message in messages], np.int64)
    begins = np.cumsum(lengths + len(between)) - lengths
    return Records(between + between.join(messages) + between, begins, lengths, first)


def float_field(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[list[float]], list[bytes]]:
    dim = draw(st.sampled_from([1, 2, 3, 17, 40]))
    packed = draw(st.booleans())
    mixed = draw(st.booleans())
    keys, rows, messages = [], [], []
    for _ in range(draw(st.integers(1, 12))):
        keys.append(draw(st.integers(-(2**63), 2**63 - 1)))
        rows.append(draw(st.lists(FLOATS, min_size=dim, max_size=dim)))
        norm = draw(st.one_of(st.just([]), st.lists(FLOATS, max_size=60)))
        step = draw(st.none() | st.integers(-5, 2**40))
        time = draw(st.none() | st.integers(-5, 2**40))
        form = draw(st.booleans()) if mixed else packed
        messages.append(sparse_files.monolith_entry(keys[-1], rows[-1], norm, step, time, packed=form))
    return keys, rows, messages


@given(batches())
def test_a_batch_is_what_protobuf_wrote(batch: tuple[list[int], list[list[float]], list[bytes]]) -> None:
    keys, rows, messages = batch
    entries = parse_entries(records(messages), None)
    np.testing.assert_array_equal(entries.ids, np.array(keys, np.int64))
    np.testing.assert_array_equal(entries.values, np.float32(rows))
    assert entries.other_bytes == sum(map(len, messages)) - len(keys) * (8 + 4 * len(rows[0]))


def test_regular_messages_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        sparse_files.monolith_entry(key, [key / 2] * 16, norm=[1.0] * length, time=time)
        for key, length, time in [
            (1, 0, None),
            (2, 3, 0),
            (3, 16, 1_700_000_000),
            (4, 100, 5),
            (5, 0, -1),
            (6, 31, None),
        ]
    ]
    calls = []
    real = monolith_entry.parse_entry
    monkeypatch.setattr(monolith_entry, "parse_entry", lambda message: calls.append(message) or real(message))
    assert parse_entries(records(messages), 16).ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert calls == messages[:1]


def test_fields_in_another_order_and_unknown_ones() -> None:
    usual = sparse_files.monolith_entry(5, [1.0, 2.0], norm=[9.0], time=7)
    key = b"\x09" + struct.pack("<q", -6)
    unknown = b"\x28\x96\x01" + b"\x32\x03abc" + b"\x3d\x00\x00\x80\x3f" + b"\x41" + bytes(8)
    state = b"\x1a\x02\x10\x01"
    others = [
        unknown + key + float_field(3) + float_field(4),
        float_field(3) + key + float_field(4),
        key + float_field(3) + state + float_field(4),
        key + float_field(3) + b"\x20\x05" + float_field(4),
        key + b"\x12\x04" + struct.pack("<f", 3) + float_field(4),
        b"\x09" + bytes(8) + float_field(3) + float_field(4) + state + b"\x20\x81\x01" + key,
        key + float_field(3) + float_field(4) + unknown,
    ]
    for batch in ([usual, *others], [*others, usual], [others[0]], [others[1], usual]):
        entries = parse_entries(records(batch), None)
        assert entries.ids.tolist() == [5 if message is usual else -6 for message in batch]
        assert entries.values.tolist() == [[1, 2] if message is usual else [3, 4] for message in batch]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"", "no id"),
        (b"\x15\x00\x00\x80\x3f" * 2, "no id"),
        (sparse_files.monolith_entry(4, []), "key 4 without a row"),
        (sparse_files.monolith_entry(4, [1.0]), "key 4 with 1 values instead of 2"),
        (sparse_files.monolith_entry(4, [1.0] * 3, time=8), "key 4 with 3 values instead of 2"),
        (sparse_files.monolith_entry(4, [1.0, 2.0], norm=[3.0])[:-1], "a field that ends after the message"),
        (b"\x08\x05", "field 1 of wire type 0"),
        (b"\x0b", "a field of wire type 3"),
        (b"\x20" + b"\xff" * 11, "a number that does not end"),
        (b"\x12\x03abc", "packed floats whose length is no multiple of 4"),
    ],
)
def test_bad_messages_are_named(message: bytes, found: str) -> None:
    good = sparse_files.monolith_entry(1, [1.0, 2.0])
    with pytest.raises(BadEntryError, match=found) as caught:
        parse_entries(records([good, good, message], first=100), 2)
    assert caught.value.number == 102
    if "instead" not in found:
        with pytest.raises(BadEntryError, match=found):
            parse_entries(records([message, good]), None)


def test_one_message() -> None:
    key, values = parse_entry(sparse_files.monolith_entry(-1, [0.5], packed=True))
    assert (key, values.tolist()) == (-1, [0.5])


def test_metadata() -> None:
    assert monolith_entry.parse_metadata(sparse_files.monolith_metadata("user", 2**40)) == ("user", 2**40)
    assert monolith_entry.parse_metadata(b"\x0a\x01a") == ("a", 0)
    with pytest.raises(ValueError, match="no table name"):
        monolith_entry.parse_metadata(b"\x10\x05")

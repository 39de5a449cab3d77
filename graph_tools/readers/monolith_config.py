# SPDX-License-Identifier: Apache-2.0
"""Parse the EmbeddingHashTableConfig of a Monolith graph's tables from the wire: one, or a list with names.

MultiEmbeddingHashTableConfig: repeated string names = 1; repeated EmbeddingHashTableConfig configs = 2
EmbeddingHashTableConfig: EntryConfig entry_config = 1
EntryConfig: repeated Segment segments = 1; EntryType entry_type = 2
Segment: FloatCompressorConfig comp_config = 3; int32 dim_size = 7
FloatCompressorConfig: one of Fp32 = 1, Fp16 = 2, FixedR8 = 3, OneBit = 4
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.readers.monolith_entry import message_fields, read_varint

SERVING = 2
ONE_BIT = 4


@dataclass(frozen=True)
class TableConfig:
    """A table.

    Attributes
    ----------
    dim : int
        Length of a row: the sum of its segments.
    one_bit : bool
        Served rows are only signs times an amplitude, regardless of the trained values.
    """

    dim: int
    one_bit: bool


def parse_table(message: bytes) -> TableConfig:
    """Parse EmbeddingHashTableConfig.

    Raises
    ------
    ValueError
        The bytes are not such a message.
    """
    dim, entry_type, compressors = 0, 0, set()
    for entry in _messages(message, 1):
        for field, wire, content in message_fields(entry):
            if (field, wire) == (2, 0):
                entry_type = read_varint(content, 0)[0]
        for segment in _messages(entry, 1):
            for field, wire, content in message_fields(segment):
                if (field, wire) == (7, 0):
                    dim += read_varint(content, 0)[0]
                elif (field, wire) == (3, 2):
                    compressors |= {number for number, _, _ in message_fields(content)}
    return TableConfig(dim, entry_type == SERVING and ONE_BIT in compressors)


def parse_tables(message: bytes) -> dict[str, TableConfig]:
    """Parse MultiEmbeddingHashTableConfig: tables by name, in the order in which lookups number them.

    Raises
    ------
    ValueError
        The bytes are not such a message.
    """
    names = [name.decode() for name in _messages(message, 1)]
    configs = [parse_table(table) for table in _messages(message, 2)]
    if len(names) != len(configs) or len(set(names)) != len(names):
        raise ValueError(f"{len(configs)} tables named {', '.join(names)}")
    return dict(zip(names, configs, strict=True))


def _messages(message: bytes, number: int) -> list[bytes]:
    return [content for field, wire, content in message_fields(message) if (field, wire) == (number, 2)]

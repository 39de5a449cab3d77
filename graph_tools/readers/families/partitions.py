# SPDX-License-Identifier: Apache-2.0
"""Read partitions of DeepRec's tables: `<name>/part_K` in graph and checkpoint, with buckets of keys in each."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.graph import Node
from graph_tools.model.tables import Part
from graph_tools.readers.families.saved import KEYS, VALUES, find_saved, read_part, rows_in_ranges, tensor
from graph_tools.tensors import Array, TensorSource

PART = re.compile(r"/part_\d+$")
OFFSET, FREQUENCIES = "-partition_offset", "-freqs"

# Key k is saved in bucket k % 1000 and looked up in part k % 1000 % parts.
BUCKETS = 1000


def parts_of(bundle: Any, name: str, handle: Node, count: int) -> tuple[list[Part], list[str]]:
    """Return the parts of the table that belong to a handle of the graph, and the names of their tensors.

    Parameters
    ----------
    bundle : BundleReader
    name : str
        Name of the table, with `/part_K` if the graph is partitioned.
    handle : Node
    count : int
        Number of parts in the graph.
    """
    match = PART.search(name)
    whole = PART.sub("", name)
    saved = _saved_parts(bundle, whole) or [find_saved(bundle, [whole], handle)]
    if match is None:
        return [_part(bundle, part) for part in saved], _tensors(saved)
    number = int(name.rpartition("_")[2])
    if len(saved) == count:
        if name not in saved:
            find_saved(bundle, [name], handle)
        return [_part(bundle, name)], _tensors([name])
    return [_part(bundle, part, range(number, BUCKETS, count)) for part in saved], _tensors(saved)


def _saved_parts(bundle: Any, whole: str) -> list[str]:
    """Return the names of a table's parts in the checkpoint; their numbers must be consecutive from 0."""
    pattern = re.compile(re.escape(whole) + r"/part_(\d+)" + KEYS + "$")
    numbers = sorted(int(found[1]) for found in map(pattern.match, bundle.names()) if found)
    for expected, number in enumerate(numbers):
        if number != expected:
            raise UnreadableError(
                f"{bundle.index}: parts {', '.join(map(str, numbers))} of table '{whole}', expected '{whole}/part_"
                f"{expected}{KEYS}' as well"
            )
    return [f"{whole}/part_{number}" for number in numbers]


def _tensors(saved: list[str]) -> list[str]:
    return [name + suffix for name in saved for suffix in (KEYS, VALUES)]


def _part(bundle: Any, name: str, buckets: range | None = None) -> Part:
    """Return a saved part, or only these buckets of it."""
    part = read_part(bundle, name + KEYS, name + VALUES)
    if name + FREQUENCIES in bundle and tensor(bundle, name + FREQUENCIES).shape[0]:
        part.frequencies = tensor(bundle, name + FREQUENCIES)
    offsets = _offsets(bundle, name, part.keys.shape[0]) if name + OFFSET in bundle else None
    if buckets is None:
        return part
    if offsets is None:
        raise UnreadableError(
            f"{bundle.index}: no tensor '{name}{OFFSET}', expected it where the graph has other parts than the "
            f"checkpoint"
        )
    ranges = [(int(offsets[i]), int(offsets[i + 1])) for i in buckets if offsets[i] < offsets[i + 1]]

    def these(source: TensorSource) -> TensorSource:
        return rows_in_ranges(source, ranges)

    frequencies = these(part.frequencies) if part.frequencies is not None else None
    return Part(these(part.keys), these(part.rows), frequencies)


def _offsets(bundle: Any, name: str, keys: int) -> Array:
    """Return the start of each bucket [1001], after checking it."""
    offsets = np.asarray(tensor(bundle, name + OFFSET).read())
    what = f"{bundle.index}: tensor '{name}{OFFSET}'"
    if offsets.shape != (BUCKETS + 1,):
        raise UnreadableError(f"{what}: shape {list(offsets.shape)}, expected [{BUCKETS + 1}]")
    if offsets[0] != 0 or (offsets < 0).any():
        bad = int(np.flatnonzero(offsets < 0)[0]) if (offsets < 0).any() else 0
        raise UnreadableError(f"{what}: {int(offsets[bad])} at {bad}, expected offsets that begin at 0")
    steps = np.flatnonzero(np.diff(offsets) < 0)
    if len(steps):
        at = int(steps[0])
        raise UnreadableError(
            f"{what}: {int(offsets[at])} at {at} and {int(offsets[at + 1])} after it, expected offsets that never fall"
        )
    if offsets[-1] != keys:
        raise UnreadableError(f"{what}: {int(offsets[-1])} at its end, expected the number of keys, {keys}")
    return offsets

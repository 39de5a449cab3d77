# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tensor bundle (checkpoint V2), read and written as streams, without TensorFlow's runtime.

A bundle `PREFIX` is an index, `PREFIX.index`, and shards, `PREFIX.data-0000i-of-0000N`. The index is a sorted string
table (`table_reader`, `table_writer`): key "" holds a header, every other key is a tensor's name and holds its dtype,
shape, place, size and checksum. A shard is nothing but the bytes of its tensors (`stored` numbers, `strings`). A
partitioned variable has an entry that lists its slices, each stored under a key of its own (`slice_keys`, `sliced`).
"""

from __future__ import annotations

from graph_tools.bundle.reader import BundleEntry, BundleReader
from graph_tools.bundle.writer import BundleWriter

__all__ = ["BundleEntry", "BundleReader", "BundleWriter"]

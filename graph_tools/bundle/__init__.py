# SPDX-License-Identifier: Apache-2.0
"""Read and write TensorFlow's tensor bundle (checkpoint V2) as streams, without TensorFlow's runtime.

A bundle `PREFIX` consists of an index, `PREFIX.index`, and shards, `PREFIX.data-0000i-of-0000N`. The index is a sorted
string table (`table_reader`, `table_writer`). Its key "" has a header as value; every other key is a tensor's name, and
its value contains dtype, shape, position, size and checksum. A shard contains only the bytes of its tensors (`stored`
numbers, `strings`). The entry of a partitioned variable lists its slices, each of which has a key of its own
(`slice_keys`, `sliced`).
"""

from __future__ import annotations

from graph_tools.bundle.reader import BundleEntry, BundleReader
from graph_tools.bundle.writer import BundleWriter

__all__ = ["BundleEntry", "BundleReader", "BundleWriter"]

# SPDX-License-Identifier: Apache-2.0
"""Provide bundles that TensorFlow writes, and what it reads from a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graph_tools.bundle import varints
from graph_tools.bundle.table_reader import read_table
from graph_tools.bundle.table_writer import write_table

Save = Callable[..., Path]


@pytest.fixture(scope="session")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture
def save(tf: Any, tmp_path: Path) -> Save:
    """Return a function that writes tensors, by name, with SaveV2."""

    def write(tensors: Mapping[str, Any], slices: Mapping[str, str] | None = None, name: str = "model") -> Path:
        prefix = tmp_path / name
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=list(tensors),
            shape_and_slices=[(slices or {}).get(key, "") for key in tensors],
            tensors=[tf.convert_to_tensor(value) for value in tensors.values()],
        )
        return prefix

    return write


@pytest.fixture
def merge(tf: Any, tmp_path: Path) -> Callable[[list[Path]], Path]:
    """Return a function that makes one bundle of many shards out of bundles of one."""

    def join(prefixes: list[Path]) -> Path:
        merged = tmp_path / "merged"
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[str(prefix) for prefix in prefixes],
            destination_prefix=str(merged),
            delete_old_dirs=False,
        )
        return merged

    return join


@pytest.fixture
def edit_index() -> Callable[[Path, bytes, Callable[[Any], Any]], None]:
    """Return a function that changes the message under a key of a bundle's index, with right checksums."""
    from tensorflow.core.protobuf import tensor_bundle_pb2

    def edit(prefix: Path, key: bytes, change: Callable[[Any], Any]) -> None:
        index = Path(f"{prefix}.index")
        entries = dict(read_table(index))
        message = tensor_bundle_pb2.BundleEntryProto() if key else tensor_bundle_pb2.BundleHeaderProto()
        message.ParseFromString(entries[key])
        change(message)
        entries[key] = message.SerializeToString()
        with index.open("wb") as out:
            write_table(out, entries.items())

    return edit


@pytest.fixture(scope="session")
def compress(tf: Any) -> Callable[[bytes], bytes]:
    """Return TensorFlow's Snappy: what its data service compresses an element with."""
    from tensorflow.core.framework import tensor_pb2

    def run(data: bytes) -> bytes:
        element = tf.raw_ops.CompressElement(components=[tf.constant(data)])
        content = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(element).numpy()).tensor_content
        size, begin = varints.decode(content, 0)
        message = tensor_pb2.VariantTensorDataProto.FromString(content[begin : begin + size]).metadata
        # Its first field, of bytes, is the compressed data.
        assert message[0] == 0x0A
        size, begin = varints.decode(message, 1)
        return bytes(message[begin : begin + size])

    return run

# SPDX-License-Identifier: Apache-2.0
"""Write request logs like hosts, without a host: PredictionLog messages as TFRecords."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from graph_tools.readers.tfrecord import masked_crc
from graph_tools.verification.messages import messages


def prediction_log(model: str, values: Sequence[float], name: str = "x") -> bytes:
    """Return a PredictionLog of a request with one float input [1, n]."""
    log = messages()["PredictionLog"]()
    request = log.predict_log.request
    request.model_spec.name = model
    tensor = request.inputs[name]
    tensor.dtype = 1
    for size in (1, len(values)):
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = struct.pack(f"<{len(values)}f", *values)
    data: bytes = log.SerializeToString()
    return data


def framed(record: bytes) -> bytes:
    """Frame a record as TFRecord files do."""
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked_crc(length)) + record + struct.pack("<I", masked_crc(record))


def write_log(state_dir: Path, model: str, began: int, records: Sequence[bytes], host: str = "host-0") -> Path:
    """Write a file of a host's request log."""
    path = state_dir / "hosts" / host / "requests" / model / f"{began:016}.tfrecord"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(framed(record) for record in records))
    return path

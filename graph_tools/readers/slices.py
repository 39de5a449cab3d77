# SPDX-License-Identifier: Apache-2.0
"""Read slices of checkpoint tensors, as TF 1's partitioned variables name them."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.errors import UnreadableError
from graph_tools.tensors import Array, StreamTensor, TensorSource, rows_per_chunk


def sliced(tensor: TensorSource, spec: str, name: str) -> TensorSource:
    """Return the part of a tensor that a slice selects.

    Parameters
    ----------
    tensor : TensorSource
    spec : str
        "" for the whole tensor, else `<shape> <begin,length of each axis, joined by ':'; '-' for a whole axis>`: "100 8
        0,50:-".

    Raises
    ------
    UnreadableError
        The slice does not fit the tensor.
    """
    if not spec:
        return tensor
    axes = spec.rsplit(" ", 1)[-1].split(":")
    bounds = []
    for axis, size in zip(axes, tensor.shape, strict=False):
        begin, length = (0, size) if axis == "-" else (int(part) for part in axis.split(","))
        bounds.append((begin, begin + length))
    if len(axes) != len(tensor.shape) or any(b < 0 or e > s for (b, e), s in zip(bounds, tensor.shape, strict=True)):
        raise UnreadableError(f"tensor '{name}': shape {list(tensor.shape)}, expected one with the slice '{spec}'")
    (first, last), rest = bounds[0], tuple(slice(b, e) for b, e in bounds[1:])

    def make(rows: int) -> Iterator[Array]:
        position = 0
        for chunk in tensor.chunks(min(rows, rows_per_chunk(tensor))):
            begin, end = max(first - position, 0), min(last - position, len(chunk))
            if begin < end:
                yield chunk[(slice(begin, end), *rest)]
            position += len(chunk)
            if position >= last:
                return

    return StreamTensor(tensor.dtype, tuple(e - b for b, e in bounds), make)

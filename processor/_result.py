# SPDX-License-Identifier: Apache-2.0
"""Convert results of the library: bytes are copied, numbers become views that keep the result alive."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import Any

import numpy as np

from processor import _dtypes
from processor._answer import Answer
from processor._ffi import ffi
from processor._lib import get_lib

_TENSOR_SIZE: int = ffi.sizeof("struct processor_tensor")
_INFO_SIZE: int = ffi.sizeof("struct processor_result_info")


class Result:
    """Own a `processor_result`; free it when the last view is gone."""

    __slots__ = ("_free", "_pointer")

    def __init__(self, pointer: Any) -> None:
        """Take ownership of `pointer` (processor_result *)."""
        self._pointer = pointer
        self._free = get_lib().processor_result_free

    def __del__(self, _is_finalizing: Any = sys.is_finalizing) -> None:
        # Late in the shutdown of the interpreter cffi may be gone; the end of the process then frees the memory.
        if not _is_finalizing():
            self._free(self._pointer)

    def to_bytes(self) -> bytes:
        """Return the bytes of the result."""
        data, size = ffi.new("const void **"), ffi.new("size_t *")
        get_lib().processor_result_bytes(self._pointer, data, size)
        return bytes(ffi.buffer(data[0], size[0])) if size[0] else b""

    def to_json(self) -> Any:
        """Return the bytes of the result, parsed as JSON."""
        return json.loads(self.to_bytes())

    def to_answer(self) -> Answer:
        """Return the bytes of a host's result, with the model, times and other facts that the result reports."""
        info = ffi.new("processor_result_info *")
        info.struct_size = _INFO_SIZE
        get_lib().processor_result_get_info(self._pointer, info)
        return Answer(
            data=self.to_bytes(),
            model_name=_text(info.model_name),
            model_version=info.model_version,
            arm=_text(info.arm),
            session=info.session,
            cpuset=_text(info.cpuset),
            queue_ns=info.queue_ns,
            decode_ns=info.decode_ns,
            run_ns=info.run_ns,
            encode_ns=info.encode_ns,
            total_ns=info.total_ns,
            batch_rows=info.batch_rows,
            retry_after_us=info.retry_after_us,
            header_length=info.header_length,
            epoch=info.epoch,
            age_us=info.age_us,
        )

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the tensors of the result by name: read-only views for numbers, arrays of bytes for strings."""
        lib = get_lib()
        tensor = ffi.new("processor_tensor *")
        arrays = {}
        for index in range(lib.processor_result_num_tensors(self._pointer)):
            tensor.struct_size = _TENSOR_SIZE
            lib.processor_result_tensor(self._pointer, index, tensor)
            name = ffi.string(tensor.name).decode()
            arrays[name] = _string_array(tensor) if tensor.dtype == _dtypes.STRING else self._view(tensor)
        return arrays

    def _view(self, tensor: Any) -> np.ndarray[Any, Any]:
        dtype = _dtypes.dtype_of_code(tensor.dtype)
        shape = _shape(tensor)
        if tensor.size == 0:
            return np.empty(shape, dtype)
        if tensor.dtype == _dtypes.BFLOAT16:
            return np.asarray(_View(self, tensor.data, shape, "<u2")).view(dtype)
        return np.asarray(_View(self, tensor.data, shape, dtype.str))


class _View:
    """Expose memory of a result so that NumPy wraps it without copying; the array keeps this object alive."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Result, data: Any, shape: tuple[int, ...], typestr: str) -> None:
        self._owner = owner
        # Read-only: an output may share its memory with a variable of the model.
        address = int(ffi.cast("uintptr_t", data))
        self.__array_interface__ = {"version": 3, "data": (address, True), "shape": shape, "typestr": typestr}


def _text(text: Any) -> str | None:
    return None if text == ffi.NULL else ffi.string(text).decode("utf-8", "replace")


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()


def _string_array(tensor: Any) -> np.ndarray[Any, Any]:
    shape = _shape(tensor)
    array = np.empty(shape, object)
    if array.size:
        block = bytes(ffi.buffer(tensor.data, tensor.size)) if tensor.size else b""
        offsets = ffi.unpack(tensor.offsets, array.size + 1)
        array.reshape(-1)[:] = [block[begin:end] for begin, end in pairwise(offsets)]
    return array

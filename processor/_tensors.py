# SPDX-License-Identifier: Apache-2.0
"""Describe NumPy arrays as tensors of the library; the library borrows their memory for the length of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from processor import _dtypes, _numbers, _strings
from processor._ffi import ffi
from processor.errors import InvalidArgumentError
from processor.signature import Signature

_TENSOR_SIZE: int = ffi.sizeof("struct processor_tensor")
_TENSOR_ARRAY: Any = ffi.typeof("processor_tensor[]")
_DIMS: Any = ffi.typeof("int64_t[]")
_OFFSETS: Any = ffi.typeof("int64_t *")
_CHARS: Any = ffi.typeof("char[]")
_KINDS_OF_STRINGS = "SUT"
# Shapes repeat from batch to batch; the cache is limited because some clients always send new shapes.
_MAX_SHAPES = 1024


def c_text(what: str, text: str) -> Any:
    """Return a text as a C string."""
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{what}: {type(text).__name__}, expected str")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{what}: {error}, expected text that can be encoded as UTF-8") from error
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{what}: {text!r} contains a NUL character, expected text without one")
    return ffi.new(_CHARS, encoded)


class InputLayout:
    """Cache facts about the inputs of one signature, known before any request. Any thread may use it."""

    def __init__(self, signature: Signature | None) -> None:
        """Prepare for a signature; None passes inputs unchanged and leaves every check to the library."""
        # By name: number of the element type, dtype if NumPy has a numeric one for it, name as a C string.
        self.fields: dict[str, tuple[int, np.dtype[Any] | None, Any]] = {}
        self._dims: dict[tuple[int, ...], Any] = {}
        specs = signature.inputs.values() if signature is not None else ()
        for spec in specs:
            self._add(spec.name, spec.type)
        for spec in specs:
            self._add(spec.tensor, spec.type)
            self._add(spec.tensor.removesuffix(":0"), spec.type)

    def _add(self, name: str, type_name: str) -> None:
        # An alias takes precedence over the name of another tensor.
        if name not in self.fields:
            code = _dtypes.code_of_name(type_name)
            self.fields[name] = (code, _dtypes.NUMPY_DTYPES.get(code), c_text("input", name))

    def dims(self, shape: tuple[int, ...]) -> Any:
        """Return a shape as a C array; equal shapes share one array."""
        dims = self._dims.get(shape)
        if dims is None:
            dims = ffi.new(_DIMS, shape)
            if len(self._dims) < _MAX_SHAPES:
                self._dims[shape] = dims
        return dims


class InputTensors:
    """Hold the inputs of one request as an array of `processor_tensor`, with all memory that the array points to."""

    __slots__ = ("_bytes", "_kept", "_layout", "_texts", "count", "tensors")

    def __init__(self, layout: InputLayout, inputs: Mapping[str, Any]) -> None:
        """Describe the arrays of `inputs`; see `Model.run` for the accepted values."""
        self.count = len(inputs)
        self.tensors = ffi.new(_TENSOR_ARRAY, self.count)
        self._layout = layout
        self._kept: list[Any] = []
        # Position, name and elements of the inputs that must be joined.
        self._bytes: list[tuple[int, str, list[Any]]] = []
        self._texts: list[tuple[int, str, list[Any]]] = []
        for index, (name, value) in enumerate(inputs.items()):
            self._add(self.tensors[index], index, name, value)
        for columns in (self._bytes, self._texts):
            if columns:
                self._join(columns)

    def _add(self, tensor: Any, index: int, name: str, value: Any) -> None:
        expected, dtype, c_name = self._layout.fields.get(name) or (0, None, None)
        if c_name is None:
            c_name = c_text("input", name)
            self._kept.append(c_name)
        tensor.struct_size = _TENSOR_SIZE
        tensor.name = c_name
        if isinstance(value, np.ndarray):
            # The usual case first: with 39 inputs, every further check of an array costs noticeable time.
            if dtype is not None and value.dtype == dtype and value.flags.c_contiguous:
                tensor.dtype = expected
                self._set_data(tensor, value.shape, value)
                return
            array = value
        elif expected == _dtypes.STRING and isinstance(value, list | tuple | bytes | str):
            self._add_strings(tensor, index, name, value)
            return
        elif expected != 0 and isinstance(value, list | tuple | bool | int | float | complex):
            array = _numbers.from_python(name, value, _dtypes.dtype_of_code(expected))
        else:
            array = _as_array(name, value)
        kind = array.dtype.kind
        if kind in _KINDS_OF_STRINGS or (kind == "O" and expected in (0, _dtypes.STRING)):
            self._add_string_array(tensor, index, name, array, expected)
        else:
            self._add_numbers(tensor, name, array, expected)

    def _add_numbers(self, tensor: Any, name: str, array: np.ndarray[Any, Any], expected: int) -> None:
        code = _dtypes.code_of_dtype(array.dtype)
        if code == 0 or (expected != 0 and code != expected):
            raise InvalidArgumentError(f"input {name!r}: array of {array.dtype}, expected {_type_name(expected)}")
        if not array.flags.c_contiguous:
            array = np.array(array, order="C")
        tensor.dtype = code
        # The buffer protocol does not support bfloat16.
        self._set_data(tensor, array.shape, array.view(np.uint16) if code == _dtypes.BFLOAT16 else array)

    def _add_string_array(self, tensor: Any, index: int, name: str, array: np.ndarray[Any, Any], expected: int) -> None:
        if expected not in (0, _dtypes.STRING):
            raise InvalidArgumentError(f"input {name!r}: array of {array.dtype}, expected {_type_name(expected)}")
        fixed = _strings.as_fixed_width(array) if array.dtype.kind in "SU" else None
        if fixed is None:
            self._add_strings(tensor, index, name, array)
            return
        tensor.dtype = _dtypes.STRING
        tensor.item_size = fixed.dtype.itemsize
        self._set_data(tensor, fixed.shape, fixed)

    def _add_strings(self, tensor: Any, index: int, name: str, value: Any) -> None:
        elements, shape = _strings.as_list(name, value)
        tensor.dtype = _dtypes.STRING
        self._set_shape(tensor, shape)
        columns = self._texts if elements and type(elements[0]) is str else self._bytes
        columns.append((index, name, elements))

    def _set_shape(self, tensor: Any, shape: tuple[int, ...]) -> None:
        if shape:
            dims = self._layout.dims(shape)
            self._kept.append(dims)
            tensor.dims = dims
            tensor.rank = len(shape)

    def _set_data(self, tensor: Any, shape: tuple[int, ...], array: np.ndarray[Any, Any]) -> None:
        self._set_shape(tensor, shape)
        buffer = ffi.from_buffer(array)
        self._kept.append(buffer)
        tensor.data = buffer
        tensor.size = len(buffer)

    def _join(self, columns: list[tuple[int, str, list[Any]]]) -> None:
        block, offsets = _strings.join([(name, elements) for _, name, elements in columns])
        c_block, c_offsets = ffi.from_buffer(block), ffi.from_buffer(_OFFSETS, offsets)
        self._kept += [c_block, c_offsets]
        begin = 0
        for index, _, elements in columns:
            tensor = self.tensors[index]
            tensor.data = c_block
            tensor.offsets = c_offsets + begin
            begin += len(elements)
            tensor.size = c_offsets[begin]


def _as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except Exception as error:
        # Any exception from the conversion of a foreign object is reported as an error of that input.
        raise InvalidArgumentError(f"input {name!r}: {error}, expected an array") from error


def _type_name(code: int) -> str:
    if code == 0:
        return "a dtype that TensorFlow has"
    if code == _dtypes.STRING:
        return "strings"
    return "bfloat16" if code == _dtypes.BFLOAT16 else str(_dtypes.dtype_of_code(code))

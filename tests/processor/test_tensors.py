# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import processor
from processor import Signature, TensorSpec
from processor._ffi import NULL, ffi
from processor._tensors import InputLayout, InputTensors

SPECS = (
    TensorSpec("x", "serving_x:0", "DT_FLOAT", (-1, 3)),
    TensorSpec("n", "serving_n:0", "DT_INT32", None),
    TensorSpec("s", "serving_s:0", "DT_STRING", (-1,)),
    TensorSpec("h", "serving_h:0", "DT_BFLOAT16", (-1,)),
)
LAYOUT = InputLayout(Signature("serving_default", "", {spec.name: spec for spec in SPECS}, {}))


def describe(**inputs: Any) -> tuple[Any, InputTensors]:
    tensors = InputTensors(LAYOUT, inputs)
    assert tensors.count == len(inputs)
    return tensors.tensors[0], tensors


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_contiguous_numbers_are_borrowed() -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    tensor, _kept = describe(x=array)
    assert int(ffi.cast("uintptr_t", tensor.data)) == address(array)
    assert (tensor.dtype, tensor.rank, tensor.size) == (1, 2, 24)
    assert ffi.unpack(tensor.dims, 2) == [2, 3]
    assert ffi.string(tensor.name) == b"x"
    assert tensor.struct_size == ffi.sizeof("processor_tensor")


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype="f4").reshape(3, 2).T, np.arange(12, dtype="f4").reshape(2, 6)[:, ::2]]
)
def test_arrays_in_other_orders_are_copied_to_row_major(array: np.ndarray) -> None:
    tensor, _kept = describe(x=array)
    assert bytes(ffi.buffer(tensor.data, tensor.size)) == array.tobytes()


def test_read_only_arrays_are_accepted() -> None:
    array = np.zeros(2, "f4")
    array.flags.writeable = False
    assert describe(x=array)[0].size == 8


@pytest.mark.parametrize("name", ["x", "serving_x:0", "serving_x"])
def test_dtype_is_known_by_alias_and_by_tensor_name(name: str) -> None:
    assert describe(**{name: [1, 2, 3]})[0].dtype == 1
    with pytest.raises(processor.InvalidArgumentError, match=f"input '{name}': array of int64, expected float32"):
        describe(**{name: np.array([1, 2, 3])})


def test_unknown_input_keeps_its_own_dtype() -> None:
    assert describe(unknown=np.zeros(2, "f8"))[0].dtype == 2
    assert describe(unknown=[1.5])[0].dtype == 2
    assert describe(unknown=["a"])[0].dtype == 7


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, "i8"),
        np.zeros(3, ">i4"),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "i4,i4"),
        np.zeros(3, object),
        np.array(["a"]),
        np.int64(1),
        [1.5],
        "a",
        b"a",
        None,
        {},
        {1, 2},
        object(),
    ],
)
def test_wrong_value_is_refused_with_the_name_of_its_input(value: object) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=r"input 'n': .*expected"):
        describe(n=value)


def test_scalars_have_no_dims() -> None:
    tensor, _kept = describe(n=3)
    assert (tensor.rank, tensor.dims, tensor.size) == (0, NULL, 4)


def test_empty_array_has_its_shape() -> None:
    tensor, _kept = describe(x=np.empty((0, 3), "f4"))
    assert ffi.unpack(tensor.dims, 2) == [0, 3]
    assert tensor.size == 0


def test_bfloat16_of_ml_dtypes() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    tensor, _kept = describe(h=array)
    assert (tensor.dtype, tensor.size) == (14, 4)
    assert int(ffi.cast("uintptr_t", tensor.data)) == address(array)
    assert describe(h=[1.5])[0].dtype == 14


def test_fixed_width_strings_are_borrowed() -> None:
    array = np.array([b"ab", b"cde"])
    tensor, _kept = describe(s=array)
    assert (tensor.dtype, tensor.item_size, tensor.size, tensor.offsets) == (7, 3, 6, NULL)
    assert int(ffi.cast("uintptr_t", tensor.data)) == address(array)


STRING_FORMS = {
    "list of bytes": [b"a", b"", b"\xc3\xbc"],
    "list of str": ["a", "", "ü"],
    "tuple": (b"a", "", "ü"),
    "objects": np.array([b"a", "", "ü"], object),
    "S": np.array([b"a", b"", "ü".encode()]),
    "U": np.array(["a", "", "ü"]),
    "strided": np.array([["a", "x"], ["", "x"], ["ü", "x"]], object)[:, 0],
}
if hasattr(np.dtypes, "StringDType"):
    STRING_FORMS["T"] = np.array(["a", "", "ü"], np.dtypes.StringDType())


@pytest.mark.parametrize("form", STRING_FORMS)
def test_every_form_of_strings_gives_the_same_result(form: str) -> None:
    tensor, _kept = describe(s=STRING_FORMS[form])
    assert tensor.dtype == 7
    assert ffi.unpack(tensor.dims, tensor.rank) == [3]
    assert elements(tensor, 3) == [b"a", b"", "ü".encode()]


def elements(tensor: Any, count: int) -> list[bytes]:
    data = bytes(ffi.buffer(tensor.data, tensor.size))
    if tensor.offsets == NULL:
        width = tensor.item_size
        return [data[i * width : (i + 1) * width].rstrip(b"\0") for i in range(count)]
    offsets = ffi.unpack(tensor.offsets, count + 1)
    return [data[offsets[i] : offsets[i + 1]] for i in range(count)]


def test_joined_strings_of_several_inputs_stay_apart() -> None:
    inputs = {"s": [b"a", b"bc"], "t": ["ü"], "u": [], "v": [b"\0", b"d"], "w": ["x", "yz"]}
    tensors = InputTensors(InputLayout(None), {name: np.array(value, object) for name, value in inputs.items()})
    for tensor, value in zip(tensors.tensors, inputs.values(), strict=True):
        assert elements(tensor, len(value)) == [v.encode() if isinstance(v, str) else v for v in value]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", 3, b"x"])
def test_name_that_is_no_c_string_is_refused(name: Any) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="input"):
        InputTensors(LAYOUT, {name: np.zeros(1, "f4")})


def test_cache_of_shapes_does_not_grow_with_unique_shapes() -> None:
    layout = InputLayout(None)
    for rows in range(2000):
        InputTensors(layout, {"x": np.zeros(rows, "i1")})
    assert len(layout._dims) <= 1024

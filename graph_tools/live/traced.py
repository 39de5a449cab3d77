# SPDX-License-Identifier: Apache-2.0
"""An array that records how it is computed from the variables of the source model."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from graph_tools.graph import Output
from graph_tools.live.errors import UntracedError
from graph_tools.live.formulas import Formulas
from graph_tools.tensors import Array

_ARITHMETIC: dict[Any, str] = {
    np.add: "AddV2", np.subtract: "Sub", np.multiply: "Mul", np.true_divide: "RealDiv", np.maximum: "Maximum",
    np.minimum: "Minimum", np.negative: "Neg", np.sqrt: "Sqrt", np.exp: "Exp", np.tanh: "Tanh", np.absolute: "Abs",
}  # fmt: skip
#: Whether these hold is decided on generic values.
_EQUATIONS = {np.equal, np.not_equal, np.isfinite, np.isnan}
#: Whether these hold depends on the values of variables, so they never hold for sure.
_COMPARISONS = {np.greater, np.greater_equal, np.less, np.less_equal}
_QUESTIONS: dict[Any, Any] = {np.all: np.all, np.any: np.any, np.allclose: np.allclose, np.array_equal: np.array_equal}


class Traced(NDArrayOperatorsMixin):
    """An array that depends on source variables, with its formula.

    It supports those operations of NumPy that passes use on weights, and records them. An equation between arrays is
    true if it holds for almost all values of the variables; `<` and `>` are never true. Any other use, such as the
    conversion to a number or to an array of NumPy, raises `UntracedError`, so that no dependence is ever lost.

    Attributes
    ----------
    formulas : Formulas
    output : Output
        The formula.
    generic : ndarray
        The result for generic values of the variables; see `generic_value`.
    """

    def __init__(self, formulas: Formulas, output: Output, generic: Array) -> None:
        self.formulas, self.output, self.generic = formulas, output, generic

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.generic.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.generic.shape
        return shape

    @property
    def ndim(self) -> int:
        return self.generic.ndim

    @property
    def size(self) -> int:
        return self.generic.size

    @property
    def nbytes(self) -> int:
        return self.generic.nbytes

    @property
    def T(self) -> Traced:  # noqa: N802
        return self.transpose()

    def __len__(self) -> int:
        return len(self.generic)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        values = [generic_of(operand) for operand in operands]
        if method == "__call__" and not options:
            if ufunc in _EQUATIONS:
                return ufunc(*values)
            if ufunc in _COMPARISONS:
                return np.zeros(np.broadcast_shapes(*(np.shape(value) for value in values)), bool)
            if ufunc in _ARITHMETIC:
                return self._computed(_ARITHMETIC[ufunc], ufunc(*values), operands)
            if ufunc is np.matmul:
                return self._multiplied(operands, np.matmul(*values))
        self._refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, _types: Any, given: Any, options: Any) -> Any:
        if function in _QUESTIONS:
            return _QUESTIONS[function](*map(generic_of, given), **options)
        if function is np.broadcast_to and not options:
            return self._reshaped("BroadcastTo", "Tidx", given[1], np.broadcast_to(self.generic, given[1]))
        if function is np.concatenate and not options and len(given) == 1:
            return self._concatenated(list(given[0]))
        if function in {np.shape, np.ndim, np.size}:
            return function(self.generic)
        self._refuse(f"numpy.{function.__name__}")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse("the conversion to an array without a formula")

    def __float__(self) -> NoReturn:
        self._refuse("the conversion to a number")

    __int__ = __bool__ = __float__

    def __getitem__(self, key: Any) -> Traced:
        if isinstance(key, (int, np.integer)):
            inputs = [self.formulas.constant(np.int32(key % len(self))), self.formulas.constant(np.int32(0))]
            return self._made("GatherV2", [*inputs], self.generic[key], Tindices=np.int32, Taxis=np.int32, batch_dims=0)
        self._refuse(f"an index of type {type(key).__name__}")

    def astype(self, dtype: Any) -> Traced:
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        output = self.formulas.add("Cast", [self.output], SrcT=self.dtype, DstT=wanted)
        return Traced(self.formulas, output, self.generic.astype(wanted))

    def reshape(self, *shape: Any) -> Traced:
        wanted = self.generic.reshape(*shape)
        return self._reshaped("Reshape", "Tshape", wanted.shape, wanted)

    def ravel(self) -> Traced:
        return self.reshape(-1)

    def transpose(self) -> Traced:
        order = self.formulas.constant(np.arange(self.ndim, dtype=np.int32)[::-1].copy())
        return self._made("Transpose", [order], self.generic.T, Tperm=np.int32)

    def take(self, numbers: Array, axis: int) -> Traced:
        inputs = [self.formulas.constant(np.asarray(numbers, np.int64)), self.formulas.constant(np.int32(axis))]
        value = self.generic.take(numbers, axis)
        return self._made("GatherV2", inputs, value, Tindices=np.int64, Taxis=np.int32, batch_dims=0)

    def sum(self, axis: int) -> Traced:
        axes = self.formulas.constant(np.int32(axis))
        value = self.generic.sum(axis=axis, dtype=self.dtype)
        return self._made("Sum", [axes], value, Tidx=np.int32, keep_dims=False)

    def any(self) -> bool:
        return bool(self.generic.any())

    def tobytes(self) -> bytes:
        """Return bytes that are equal for arrays that are equal for almost all values of the variables."""
        return self.generic.tobytes()

    def _computed(self, op: str, value: Array, operands: Any) -> Traced:
        inputs = [self._input(operand, value.dtype) for operand in operands]
        return Traced(self.formulas, self.formulas.add(op, inputs, T=value.dtype), value)

    def _multiplied(self, operands: Any, value: Array) -> Traced:
        """Record a product of a vector or matrix with another one."""
        inputs = [self._input(operand, value.dtype) for operand in operands]
        shapes = [np.shape(generic_of(operand)) for operand in operands]
        if max(map(len, shapes)) > 2:
            self._refuse("numpy.matmul of more than two dimensions")
        for place, shape in enumerate(shapes):
            if len(shape) == 1:
                matrix = self.formulas.constant(np.array([1, -1] if place == 0 else [-1, 1], np.int32))
                inputs[place] = self.formulas.add("Reshape", [inputs[place], matrix], T=value.dtype, Tshape=np.int32)
        product = self.formulas.add("MatMul", inputs, T=value.dtype, transpose_a=False, transpose_b=False)
        target = self.formulas.constant(np.array(value.shape, np.int32))
        return Traced(
            self.formulas, self.formulas.add("Reshape", [product, target], T=value.dtype, Tshape=np.int32), value
        )

    def _concatenated(self, parts: list[Any]) -> Traced:
        value = np.concatenate([generic_of(part) for part in parts])
        inputs = [self._input(part, value.dtype) for part in parts]
        axis = self.formulas.constant(np.int32(0))
        made = self.formulas.add("ConcatV2", [*inputs, axis], N=len(parts), T=value.dtype, Tidx=np.int32)
        return Traced(self.formulas, made, value)

    def _reshaped(self, op: str, kind: str, shape: Any, value: Array) -> Traced:
        wanted = self.formulas.constant(np.array(shape, np.int32).reshape(-1))
        return self._made(op, [wanted], value, **{kind: np.int32})

    def _made(self, op: str, more: list[Output], value: Array, **attrs: Any) -> Traced:
        key = "Tparams" if op == "GatherV2" else "T"
        made = self.formulas.add(op, [self.output, *more], **{key: self.dtype}, **attrs)
        return Traced(self.formulas, made, np.asarray(value))

    def _input(self, operand: Any, dtype: np.dtype[Any]) -> Output:
        if isinstance(operand, Traced):
            return operand.astype(dtype).output
        return self.formulas.constant(np.asarray(operand, dtype))

    def _refuse(self, use: str) -> NoReturn:
        names = ", ".join(f"'{name}'" for name in self.formulas.sources_of([self.output])[:3])
        raise UntracedError(f"a value computed from variable {names}: {use}, expected an operation that a formula has")


def generic_of(value: Any) -> Any:
    """Return the generic value of a traced array, and anything else as it is."""
    return value.generic if isinstance(value, Traced) else value

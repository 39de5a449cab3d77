# SPDX-License-Identifier: Apache-2.0
"""The variables of a live model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, cast

from graph_tools.live.errors import UntracedError
from graph_tools.live.formulas import Formulas, generic_value
from graph_tools.live.traced import Traced
from graph_tools.tensors import Array, BaseTensor, TensorSource


class LiveTensor(BaseTensor):
    """A variable that a trainer may change, or a weight that is computed from such variables.

    It is read as a traced array, or, by code that follows changes of rows itself, with `plain`. Reading it in any other
    way raises `UntracedError`.

    Attributes
    ----------
    source : str or None
        The name of the source variable; None for a computed weight.
    """

    def __init__(
        self, value: Traced | None, tensor: TensorSource | None, formulas: Formulas, source: str | None
    ) -> None:
        known = value if tensor is None else tensor
        assert known is not None
        self.source = source
        self.dtype, self.shape = known.dtype, known.shape
        self._formulas, self._value, self._tensor = formulas, value, tensor

    @classmethod
    def of_variable(cls, formulas: Formulas, name: str, tensor: TensorSource) -> LiveTensor:
        return cls(None, tensor, formulas, name)

    @classmethod
    def of_value(cls, value: Traced) -> LiveTensor:
        return cls(value, None, value.formulas, None)

    @property
    def key(self) -> str:
        """Return a text that is equal for tensors that always have equal elements."""
        return f"source {self.source}" if self.source is not None else f"formula {self.traced.output}"

    @property
    def traced(self) -> Traced:
        """Return the value with its formula."""
        if self._value is None:
            assert self._tensor is not None
            assert self.source is not None
            output = self._formulas.source(self.source, self._tensor)
            self._value = Traced(self._formulas, output, generic_value(self.source, self._tensor.read()))
        return self._value

    @property
    def plain(self) -> TensorSource:
        """Return the elements in the source model, without a formula."""
        if self._tensor is None:
            self._refuse()
        return self._tensor

    def chunks(self, rows: int) -> Iterator[Array]:
        self._refuse()

    def read(self) -> Array:
        self._refuse()

    def _refuse(self) -> NoReturn:
        name = self.source or str(self.traced.output)
        raise UntracedError(f"variable '{name}': read without a formula, expected a read that records one")


def read_weight(tensor: TensorSource) -> Array:
    """Return the elements of a weight; they are traced if they depend on variables that a trainer may change."""
    return cast(Array, tensor.traced) if isinstance(tensor, LiveTensor) else tensor.read()


def plain(tensor: TensorSource) -> TensorSource:
    """Return a tensor whose rows are followed one by one, so that they need no formula."""
    return tensor.plain if isinstance(tensor, LiveTensor) else tensor

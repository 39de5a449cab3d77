# SPDX-License-Identifier: Apache-2.0
"""Numbers in the plan of an op, which is text: they are those of the source model, and may have a formula."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from graph_tools.graph import Output
from graph_tools.live.traced import Traced, generic_of
from graph_tools.tensors import Array


@dataclass(frozen=True)
class PlanNumbers:
    """An array of float32 that is hashed and compared by its elements.

    Attributes
    ----------
    elements : bytes
        Of the array, or of the generic value of a traced one.
    shape : tuple of int
    traced : Traced or None
    """

    elements: bytes
    shape: tuple[int, ...]
    traced: Traced | None = field(compare=False)

    @classmethod
    def of(cls, value: Array) -> PlanNumbers:
        held = np.ascontiguousarray(generic_of(value), np.float32)
        return cls(held.tobytes(), held.shape, value if isinstance(value, Traced) else None)

    @property
    def array(self) -> Array:
        """Return the numbers, traced if they may change."""
        if self.traced is not None:
            return cast(Array, self.traced)
        return np.frombuffer(self.elements, np.float32).reshape(self.shape)

    @property
    def formula(self) -> Output | None:
        return None if self.traced is None else self.traced.output

    def read(self) -> Array:
        """Return the numbers of the source model."""
        if self.traced is None:
            return self.array
        (value,) = self.traced.formulas.evaluate([self.traced.output])
        return value

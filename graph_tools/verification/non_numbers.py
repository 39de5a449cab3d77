# SPDX-License-Identifier: Apache-2.0
"""Find differences that TensorFlow itself causes: relu of NaN depends on which ops its rewriter computes together.

After a cut the graph is smaller, so the rewriter may combine other ops than before. Stock TensorFlow may therefore
compute NaN before the cut and a number after it. This happens with oneDNN only: if both models are equal without
oneDNN, the conversion did not cause the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_tools.tensors import Array
from graph_tools.verification.compare import Tolerance, is_real, outside
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer

Both = tuple[list[Answer], list[Answer]]


@dataclass
class Rewritten:
    """An output that TensorFlow's rewriting changes.

    Attributes
    ----------
    signature, output : str
    elements : int
    inputs : list of str
        Inputs that contain numbers that are not finite in the rows concerned.
    a, b : str
        The outputs of the models at one of the elements.
    """

    signature: str
    output: str
    elements: int = 0
    inputs: list[str] = field(default_factory=list)
    a: str = ""
    b: str = ""


def has_non_numbers(request: Request) -> bool:
    """Return whether a request contains NaN or infinity."""
    return any(_is_not_finite(value).any() for value in request.inputs.values())


def _is_not_finite(value: Array) -> Array:
    if not is_real(value):
        return np.zeros(value.shape, bool)
    found: Array = ~np.isfinite(value.astype(np.float64))
    return found


class Alike:
    """Finds the elements that are equal in both models with the other setting of oneDNN.

    Parameters
    ----------
    asked : sequence of Request
    first, second : sequence of Answer
    tolerance : Tolerance
    ask : callable
        Runs requests on both models with the other setting; called only if there are such requests.
    """

    def __init__(
        self,
        asked: Sequence[Request],
        first: Sequence[Answer],
        second: Sequence[Answer],
        tolerance: Tolerance,
        ask: Callable[[list[Request]], Both | None],
    ) -> None:
        self.found: dict[tuple[str, str], Rewritten] = {}
        self._tolerance = tolerance
        self._others: dict[int, tuple[Answer, Answer]] = {}
        wanted = [
            number
            for number, (a, b) in enumerate(zip(first, second, strict=True))
            if isinstance(a, dict) and isinstance(b, dict) and self._differ(a, b) and has_non_numbers(asked[number])
        ]
        others = ask([asked[number] for number in wanted]) if wanted else None
        if others is not None:
            self._others = dict(zip(wanted, zip(*others, strict=True), strict=True))

    def _differ(self, a: dict[str, Array], b: dict[str, Array]) -> bool:
        return any(
            key in b and _comparable(a[key], b[key]) and outside(a[key], b[key], self._tolerance).any() for key in a
        )

    def equal_elsewhere(self, number: int, request: Request, key: str, a: Array, b: Array) -> Array | None:
        """Return for each element of an output whether both models agree on it with the other setting; None: not asked.

        Differences between `a` and `b` at such elements are recorded, since TensorFlow itself causes them.
        """
        first, second = self._others.get(number, (None, None))
        if not isinstance(first, dict) or not isinstance(second, dict) or not _comparable(a, b):
            return None
        x, y = first.get(key), second.get(key)
        if x is None or y is None or not _comparable(x, y) or x.shape != a.shape:
            return None
        equal: Array = ~outside(x, y, self._tolerance)
        self._record(request, key, a, b, equal & outside(a, b, self._tolerance))
        return equal

    def _record(self, request: Request, key: str, a: Array, b: Array, excused: Array) -> None:
        if not excused.any():
            return
        noted = self.found.setdefault((request.signature, key), Rewritten(request.signature, key))
        noted.elements += int(excused.sum())
        place = tuple(int(index) for index in np.argwhere(excused)[0])
        noted.a, noted.b = noted.a or f"{float(a[place]):g}", noted.b or f"{float(b[place]):g}"
        rows = {int(index[0]) for index in np.argwhere(excused)} if a.ndim else set()
        for name, value in request.inputs.items():
            by_row = value.ndim > 0 and a.ndim > 0 and len(value) == len(a)
            looked_at = value[sorted(rows)] if by_row else value
            if name not in noted.inputs and _is_not_finite(looked_at).any():
                noted.inputs.append(name)

    def warnings(self) -> list[str]:
        """Return the outputs concerned, and the inputs that cause it, one sentence each."""
        return [
            f"signature '{output.signature}', output '{output.output}': {output.elements} elements of requests with "
            f"NaN or infinities in {', '.join(map(repr, output.inputs))} differ, such as {output.a} and {output.b}, "
            "since TensorFlow with oneDNN rewrites the two graphs differently; without oneDNN they are equal"
            for output in self.found.values()
        ]


def _comparable(a: Array, b: Array) -> bool:
    return is_real(a) and is_real(b) and a.shape == b.shape

# SPDX-License-Identifier: Apache-2.0
"""Build requests for one user and many items, in each form that a split model accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from graph_tools.tensors import Array
from graph_tools.verification.request import Request


def with_user_forms(requests: Iterable[Request], user: Sequence[str]) -> Iterator[Request]:
    """Yield the requests; after one with several rows, also one for one user, in turns with equal rows and one row."""
    forms = 0
    for request in requests:
        yield request
        rows = item_rows(request.inputs, user)
        if user and rows and rows > 1:
            once = {key: value[:1] if key in user else value for key, value in request.inputs.items()}
            equal = _repeated(once, user, rows)
            form, short = ("one row of the user", once) if forms % 2 else ("equal rows of the user", None)
            yield Request(request.signature, equal, f"{request.origin}, {form}", short=short)
            forms += 1


def with_user_repeated(request: Request, user: Sequence[str]) -> Request:
    """Return a recorded request, in which one row of the user is repeated for models that are not split."""
    rows = item_rows(request.inputs, user)
    if not user or rows is None or rows == 1 or any(request.inputs[key].shape[:1] != (1,) for key in user):
        return request
    return replace(request, inputs=_repeated(request.inputs, user, rows), short=request.inputs)


def item_rows(inputs: Mapping[str, Array], user: Sequence[str]) -> int | None:
    """Return the number of rows of the inputs that are not the user's; None if no such input has rows."""
    return max((len(value) for key, value in inputs.items() if key not in user and value.ndim), default=None)


def _repeated(inputs: Mapping[str, Array], user: Sequence[str], rows: int) -> dict[str, Array]:
    return {key: np.repeat(value, rows, 0) if key in user else value for key, value in inputs.items()}

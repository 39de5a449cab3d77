# SPDX-License-Identifier: Apache-2.0
"""Define a request as both models receive it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graph_tools.tensors import Array


@dataclass(frozen=True)
class Request:
    """Inputs for one signature.

    Attributes
    ----------
    signature : str
    inputs : mapping of str to ndarray
        By key of the signature; strings are `bytes` in an object array.
    origin : str
        Source of the request, in words for the report: `generated 3, absent keys` or `file.npz`.
    labels : ndarray [rows] or None
        Recorded outcomes; any value other than 0 is positive.
    short : mapping of str to ndarray, or None
        Inputs for the second model, if they differ: the same with one row of the user's inputs.
    """

    signature: str
    inputs: Mapping[str, Array]
    origin: str
    labels: Array | None = None
    short: Mapping[str, Array] | None = None

    @property
    def generated(self) -> bool:
        return self.origin.startswith("generated")

    @property
    def shortest(self) -> Request:
        """The request in the form that the second model receives."""
        return self if self.short is None else replace(self, inputs=self.short, short=None)

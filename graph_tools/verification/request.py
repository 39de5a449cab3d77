# SPDX-License-Identifier: Apache-2.0
"""A request as both models get it."""

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
        Where it comes from, in words for the report: `generated 'absent keys' 3` or `file.npz`.
    labels : ndarray [rows] or None
        What happened, where that was recorded: not 0 is positive.
    short : mapping of str to ndarray, or None
        What the second model is asked instead: the same with one row of the user.
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
        """The request in the form that the second model is asked."""
        return self if self.short is None else replace(self, inputs=self.short, short=None)

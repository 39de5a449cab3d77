# SPDX-License-Identifier: Apache-2.0
"""A request as both models get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """

    signature: str
    inputs: Mapping[str, Array]
    origin: str
    labels: Array | None = None

    @property
    def generated(self) -> bool:
        return self.origin.startswith("generated")

# SPDX-License-Identifier: Apache-2.0
"""Describe the inputs and outputs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from processor import _dtypes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Describe one input or output of a signature.

    Attributes
    ----------
    name : str
        Alias in the signature.
    tensor : str
        Name in the graph, for example "serving_default_dense:0". A request may use this name or the alias.
    type : str
        TensorFlow's name of the element type, for example "DT_FLOAT".
    shape : tuple of int, or None
        -1 for an open dimension; None if even the rank is open.
    optional : bool
        For an input: whether it has a default value, so that requests may omit it.
    """

    name: str
    tensor: str
    type: str
    shape: tuple[int, ...] | None
    optional: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the NumPy type of the elements; `object` for strings, which are returned as `bytes`."""
        return _dtypes.dtype_of_code(_dtypes.code_of_name(self.type))


@dataclass(frozen=True, slots=True)
class Signature:
    """Describe one way to call a model: inputs and outputs by alias, in the order of the library.

    Attributes
    ----------
    is_default : bool
        Whether this signature is used for requests that name none.
    """

    name: str
    method_name: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    is_default: bool = False


def parse_signatures(entries: list[dict[str, Any]]) -> dict[str, Signature]:
    """Parse the JSON that `processor_model_signatures` returns into signatures by name."""
    signatures = (
        Signature(
            entry["signature_name"],
            entry["method_name"],
            _specs(entry["inputs"]),
            _specs(entry["outputs"]),
            entry["default"],
        )
        for entry in entries
    )
    return {signature.name: signature for signature in signatures}


def _specs(entries: list[dict[str, Any]]) -> dict[str, TensorSpec]:
    return {
        entry["name"]: TensorSpec(
            entry["name"],
            entry["tensor"],
            entry["dtype"],
            None if entry["shape"] is None else tuple(entry["shape"]),
            entry.get("optional", False),
        )
        for entry in entries
    }

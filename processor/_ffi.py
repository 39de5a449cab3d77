# SPDX-License-Identifier: Apache-2.0
"""Export the compiled declarations of processor.h; no library is opened here."""

from __future__ import annotations

from typing import Any

try:
    from processor._abi import ffi as _ffi
    from processor._build import TENSORFLOW_VERSION
except ModuleNotFoundError as error:
    raise ImportError(f"{error.name}: not generated, expected a build: run `make build` or `pip install .`") from error

ffi: Any = _ffi
NULL: Any = _ffi.NULL

__all__ = ["NULL", "TENSORFLOW_VERSION", "ffi"]

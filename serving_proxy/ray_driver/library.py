# SPDX-License-Identifier: Apache-2.0
"""Ray itself, which only some installations have."""

from __future__ import annotations

from typing import Any

from serving_proxy.errors import InvalidError
from serving_proxy.replicas.records import RAY_MISSING


def import_ray() -> Any:
    """Return Ray.

    Raises
    ------
    InvalidError
        It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InvalidError(RAY_MISSING) from error
    return ray

# SPDX-License-Identifier: Apache-2.0
"""The version of the proxy."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Return the distribution's version; "unreleased" in a checkout that is not installed."""
    try:
        return metadata.version("recprocessor")
    except metadata.PackageNotFoundError:
        return "unreleased"

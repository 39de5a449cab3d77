# SPDX-License-Identifier: Apache-2.0
"""The error of a value that is used in a way that formulas do not have."""

from __future__ import annotations

from graph_tools.errors import ConversionError


class UntracedError(ConversionError):
    """A value depends on a variable, but is used in a way that no formula records."""

# SPDX-License-Identifier: Apache-2.0
"""The training systems whose exports are understood, one module each; a new one is added to this list."""

from __future__ import annotations

from graph_tools.readers.families.base import Family

FAMILIES: list[Family] = []

__all__ = ["FAMILIES", "Family"]

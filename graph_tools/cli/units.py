# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """Write bytes with a decimal unit: `25.6 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent_text(fraction: float) -> str:
    """Write a fraction in percent: `49.8 %`."""
    return f"{100 * fraction:.1f} %"


def difference_text(worst: float) -> str:
    """Write the largest difference between scores."""
    return "scores are equal bit for bit" if worst == 0 else f"largest difference {worst:.2g}"

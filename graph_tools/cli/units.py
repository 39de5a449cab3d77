# SPDX-License-Identifier: Apache-2.0
"""Format numbers for people."""

from __future__ import annotations

from typing import Any


def bytes_text(count: float) -> str:
    """Return bytes with a decimal unit: `25.6 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def change_text(before: float, after: float) -> str:
    """Return the growth in percent: `-49.8 %`; empty if `before` is 0."""
    percent = round(100 * (after / before - 1), 1) if before else 0.0
    return f"{percent:+.1f} %" if percent else "0.0 %" if before else ""


def table_size_text(rows: int, dim: int) -> str:
    """Return the size of a table: `1,671 x 16`."""
    return f"{rows:,} x {dim}"


def difference_text(found: dict[str, Any]) -> str:
    """Return the largest difference between the scores of a verification, in words."""
    if found["bit_exact"]:
        return "scores are equal bit for bit"
    worst = max((float(output["max_abs_difference"]) for output in found["outputs"]), default=0.0)
    return f"largest difference {worst:.2g}"


def weak_text(found: dict[str, Any]) -> list[str]:
    """Return the warnings of a verification, and why it proves little, in lines without markup."""
    return [*found["warnings"], *(f"weak proof: {reason}" for reason in found["weak"])]


def settings_text(found: dict[str, Any]) -> str:
    """Return how TensorFlow ran: `oneDNN on`."""
    settings = found["settings"]
    if settings is None:
        return ""
    variable = "" if settings["variable"] is None else f" (TF_ENABLE_ONEDNN_OPTS={settings['variable']})"
    return f"oneDNN {'on' if settings['onednn'] else 'off'}{variable}"


def asked_text(found: dict[str, Any]) -> str:
    """Return how many requests of a verification count, why others do not, and their rows: `31 of 32 requests, ...`."""
    answered = sum(signature["answered"] for signature in found["signatures"])
    refused = [request for request in found["refused"] if not request["empty"]]
    both = sum(request["a"] is not None and request["b"] is not None for request in refused)
    why = {"without rows": found["requests"] - answered - len(refused), "refused by both": both}
    others = ", ".join(f"{count:,} {what}" for what, count in why.items() if count > 0)
    return f"{answered:,} of {found['requests']:,} requests{f' ({others})' if others else ''}, {found['rows']:,} rows"

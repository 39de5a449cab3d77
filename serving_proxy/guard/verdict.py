# SPDX-License-Identifier: Apache-2.0
"""What the guard says of a version, with the numbers that it goes by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from serving_proxy.counters.tally import Tally


class Role(StrEnum):
    """As what a version is judged."""

    ARM = "arm"
    SHADOW = "shadow"
    BASELINE = "baseline"


class Ruling(StrEnum):
    """What a verdict comes down to."""

    WAIT = "wait"
    """Too few requests, or too close to a limit to be sure."""
    OK = "ok"
    """Enough requests, and within every limit."""
    BAD = "bad"
    """A limit is exceeded, for certain."""
    PROMOTE = "promote"
    """Within every limit for as long as was asked."""


@dataclass(frozen=True)
class Evidence:
    """What is judged.

    Attributes
    ----------
    tally : Tally
        Of the window.
    baseline : Tally or None
        Of the version that it is measured by, in the same window; None: of a baseline itself.
    slo_p99_ms : float or None [ms]
    within_s : float [s]
        For how long it has been within its limits.
    """

    role: Role
    tally: Tally
    baseline: Tally | None = None
    slo_p99_ms: float | None = None
    within_s: float = 0.0


@dataclass(frozen=True)
class Finding:
    """One limit and what was found.

    Attributes
    ----------
    what : str
        `errors`, `p99`, `nan`, `correlation` or `difference`.
    ruling : Ruling
    value, limit : float or None
        Percent, milliseconds or as it is; `value` is the best guess, None where there is nothing to guess from.
    sample : int
        Requests that it was made from.
    text : str
        A sentence with the numbers.
    baseline : float or None
        What the baseline had within the same window, in percent or milliseconds; None where nothing was compared.
    """

    what: str
    ruling: Ruling
    value: float | None
    limit: float
    sample: int
    text: str
    baseline: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What the guard says of a version."""

    ruling: Ruling
    reason: str
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"findings": [asdict(finding) for finding in self.findings]}

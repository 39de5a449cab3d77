# SPDX-License-Identifier: Apache-2.0
"""The guard's verdict on a version, with the numbers that led to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from serving_proxy.counters.tally import Tally


class Role(StrEnum):
    """The role in which a version is judged."""

    ARM = "arm"
    SHADOW = "shadow"
    BASELINE = "baseline"


class Ruling(StrEnum):
    """The result of a verdict."""

    WAIT = "wait"
    """Too few requests, or too close to a limit to be sure."""
    OK = "ok"
    """Enough requests, and within every limit."""
    BAD = "bad"
    """A limit is exceeded, with the wanted confidence."""
    PROMOTE = "promote"
    """Within every limit for the required time."""


@dataclass(frozen=True)
class Evidence:
    """The input of a verdict.

    Attributes
    ----------
    tally : Tally
        Counters of the window.
    baseline : Tally or None
        Counters of the baseline in the same window; None if the version is the baseline itself.
    slo_p99_ms : float or None [ms]
    within_s : float [s]
        How long it has been within its limits.
    """

    role: Role
    tally: Tally
    baseline: Tally | None = None
    slo_p99_ms: float | None = None
    within_s: float = 0.0


@dataclass(frozen=True)
class Finding:
    """One limit and the value that was found.

    Attributes
    ----------
    what : str
        `errors`, `p99`, `nan`, `correlation` or `difference`.
    ruling : Ruling
    value, limit : float or None
        In percent, in milliseconds, or without unit; `value` is the best estimate, None if there are no data.
    sample : int
        Number of requests in the sample.
    text : str
        A sentence with the numbers.
    baseline : float or None
        The baseline's value within the same window, in percent or milliseconds; None if nothing was compared.
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
    """The guard's verdict on a version."""

    ruling: Ruling
    reason: str
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return asdict(self) | {"findings": [asdict(finding) for finding in self.findings]}

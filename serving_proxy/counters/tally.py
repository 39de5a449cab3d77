# SPDX-License-Identifier: Apache-2.0
"""What was counted of one version: added up over hosts, subtracted over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from serving_proxy.counters.histogram import Histogram

# The version or its host failed.
FAULTS = frozenset({"UNKNOWN", "INTERNAL", "DATA_LOSS", "UNIMPLEMENTED", "ABORTED"})
# A client or the load may be the cause, and as well a version that refuses what its baseline takes. FAILED_PRECONDITION
# is TensorFlow Serving's status for a signature that the client made up.
REFUSALS = frozenset(
    {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "NOT_FOUND", "DEADLINE_EXCEEDED", "UNAVAILABLE"}
)
# Neither: a client that goes away, one without permission, and variants that are shed before the baseline.
UNJUDGED = frozenset({"CANCELLED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "ALREADY_EXISTS"})


NO_LATENCIES = Histogram()


@dataclass(frozen=True)
class Moments:
    """A number of values, their sum, the sum of their squares and the largest one."""

    count: float = 0.0
    sum: float = 0.0
    squares: float = 0.0
    max: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        """Put two together."""
        return Moments(
            self.count + other.count,
            self.sum + other.sum,
            self.squares + other.squares,
            max(self.max, other.max),
        )

    def __sub__(self, earlier: Moments) -> Moments:
        """Return what has come since; the maximum stays that of all."""
        return Moments(self.count - earlier.count, self.sum - earlier.sum, self.squares - earlier.squares, self.max)

    @property
    def mean(self) -> float | None:
        """Their mean; None of nothing."""
        return self.sum / self.count if self.count > 0 else None


@dataclass(frozen=True)
class Scores:
    """Answers that were looked into: their scores, and how many of these were no numbers."""

    answers: int = 0
    count: int = 0
    nan: int = 0
    infinite: int = 0

    def __add__(self, other: Scores) -> Scores:
        """Put two together."""
        return Scores(
            self.answers + other.answers,
            self.count + other.count,
            self.nan + other.nan,
            self.infinite + other.infinite,
        )

    def __sub__(self, earlier: Scores) -> Scores:
        """Return what has come since."""
        return Scores(
            self.answers - earlier.answers,
            self.count - earlier.count,
            self.nan - earlier.nan,
            self.infinite - earlier.infinite,
        )

    @property
    def bad(self) -> float:
        """As many answers as have the rate of NaN and infinite scores; scores of one answer fail together."""
        return self.answers * (self.nan + self.infinite) / self.count if self.count else 0.0


@dataclass(frozen=True)
class Tally:
    """Counters of one version.

    Attributes
    ----------
    outcomes : dict of str to int
        Requests that ended, by the status's name.
    latency : Histogram
        Of the same.
    queue, run : Moments [us]
    arms, sheds : dict of str to int
    scores : Scores
        Of answers to clients.
    shadow : dict of str to int
        `compared`, `dropped` and `failed` copies.
    shadow_scores, baseline_scores : Scores
        Of the copies, and of what they were compared with.
    difference, correlation : Moments
    """

    outcomes: Mapping[str, int] = field(default_factory=dict)
    latency: Histogram = NO_LATENCIES
    queue: Moments = Moments()
    run: Moments = Moments()
    arms: Mapping[str, int] = field(default_factory=dict)
    sheds: Mapping[str, int] = field(default_factory=dict)
    scores: Scores = Scores()
    shadow: Mapping[str, int] = field(default_factory=dict)
    shadow_scores: Scores = Scores()
    baseline_scores: Scores = Scores()
    difference: Moments = Moments()
    correlation: Moments = Moments()

    def __add__(self, other: Tally) -> Tally:
        """Put two together."""
        return _combined(self, other, 1)

    def __sub__(self, earlier: Tally) -> Tally:
        """Return what has come since."""
        return _combined(self, earlier, -1)

    def shrunk(self, earlier: Tally) -> bool:
        """Say whether a counter is smaller than before: whoever counts has begun anew."""
        return any(self.outcomes.get(name, 0) < count for name, count in earlier.outcomes.items()) or any(
            self.shadow.get(name, 0) < count for name, count in earlier.shadow.items()
        )

    @property
    def requests(self) -> int:
        """Requests that ended."""
        return sum(self.outcomes.values())

    @property
    def faults(self) -> int:
        """Requests that failed by a fault of the version or its host."""
        return sum(count for name, count in self.outcomes.items() if name in FAULTS)

    @property
    def failures(self) -> int:
        """Faults and refusals."""
        return sum(count for name, count in self.outcomes.items() if name in FAULTS or name in REFUSALS)

    @property
    def judged(self) -> int:
        """Requests whose outcome says something of the version."""
        return sum(count for name, count in self.outcomes.items() if name not in UNJUDGED)

    @property
    def copies(self) -> int:
        """Copies of a baseline's requests that were run."""
        return self.shadow.get("compared", 0) + self.shadow.get("failed", 0)


def _combined(one: Tally, other: Tally, sign: int) -> Tally:
    values: dict[str, Any] = {}
    for part in fields(Tally):
        mine, theirs = getattr(one, part.name), getattr(other, part.name)
        if isinstance(mine, Mapping):
            names = {**mine, **theirs}
            values[part.name] = {name: mine.get(name, 0) + sign * theirs.get(name, 0) for name in names}
        else:
            values[part.name] = mine + theirs if sign > 0 else mine - theirs
    return Tally(**values)

# SPDX-License-Identifier: Apache-2.0
"""The counters of one version: added over hosts, subtracted over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from serving_proxy.counters.histogram import Histogram

# Statuses that the version or its host caused.
FAULTS = frozenset({"UNKNOWN", "INTERNAL", "DATA_LOSS", "UNIMPLEMENTED", "ABORTED"})
# Statuses that the client or the load may have caused, but also a version that refuses what its baseline accepts.
# FAILED_PRECONDITION is TensorFlow Serving's status for a signature that the model does not have.
REFUSALS = frozenset(
    {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "NOT_FOUND", "DEADLINE_EXCEEDED", "UNAVAILABLE"}
)
# Neither of both: a client that cancels or lacks permission, and variants whose requests are shed before the
# baseline's.
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
        """Add two sets of values."""
        return Moments(
            self.count + other.count,
            self.sum + other.sum,
            self.squares + other.squares,
            max(self.max, other.max),
        )

    def __sub__(self, earlier: Moments) -> Moments:
        """Return the values since the earlier ones; the maximum remains that of all values."""
        return Moments(self.count - earlier.count, self.sum - earlier.sum, self.squares - earlier.squares, self.max)

    @property
    def mean(self) -> float | None:
        """Return their mean; None if there are none."""
        return self.sum / self.count if self.count > 0 else None


@dataclass(frozen=True)
class Scores:
    """The scores of answers that were inspected, and how many of them were not finite numbers."""

    answers: int = 0
    count: int = 0
    nan: int = 0
    infinite: int = 0

    def __add__(self, other: Scores) -> Scores:
        """Add the counters."""
        return Scores(
            self.answers + other.answers,
            self.count + other.count,
            self.nan + other.nan,
            self.infinite + other.infinite,
        )

    def __sub__(self, earlier: Scores) -> Scores:
        """Return the counters since the earlier ones."""
        return Scores(
            self.answers - earlier.answers,
            self.count - earlier.count,
            self.nan - earlier.nan,
            self.infinite - earlier.infinite,
        )

    @property
    def bad(self) -> float:
        """Return the number of answers times the rate of NaN and infinite scores; the scores of one answer fail
        together.
        """
        return self.answers * (self.nan + self.infinite) / self.count if self.count else 0.0


@dataclass(frozen=True)
class Tally:
    """Counters of one version.

    Attributes
    ----------
    outcomes : dict of str to int
        Finished requests, by the name of their status.
    latency : Histogram
        Of the same requests.
    queue, run : Moments [us]
    arms, sheds : dict of str to int
    scores : Scores
        Of answers to clients.
    shadow : dict of str to int
        Mirrored requests that were `compared`, `dropped` or `failed`.
    shadow_scores, baseline_scores : Scores
        Of mirrored requests, and of the baseline's answers that they were compared with.
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
        """Add the counters."""
        return _combine(self, other, 1)

    def __sub__(self, earlier: Tally) -> Tally:
        """Return the counters since the earlier ones."""
        return _combine(self, earlier, -1)

    def has_shrunk_since(self, earlier: Tally) -> bool:
        """Return whether a counter is smaller than before, which means that counting started again."""
        return any(self.outcomes.get(name, 0) < count for name, count in earlier.outcomes.items()) or any(
            self.shadow.get(name, 0) < count for name, count in earlier.shadow.items()
        )

    @property
    def requests(self) -> int:
        """Return the number of finished requests."""
        return sum(self.outcomes.values())

    @property
    def faults(self) -> int:
        """Return the number of requests that failed because of the version or its host."""
        return sum(count for name, count in self.outcomes.items() if name in FAULTS)

    @property
    def failures(self) -> int:
        """Return the number of faults and refusals."""
        return sum(count for name, count in self.outcomes.items() if name in FAULTS or name in REFUSALS)

    @property
    def judged(self) -> int:
        """Return the number of requests whose outcome says something about the version."""
        return sum(count for name, count in self.outcomes.items() if name not in UNJUDGED)

    @property
    def mirrored(self) -> int:
        """Return the number of mirrored requests that were run."""
        return self.shadow.get("compared", 0) + self.shadow.get("failed", 0)


def _combine(first: Tally, second: Tally, sign: int) -> Tally:
    values: dict[str, Any] = {}
    for part in fields(Tally):
        mine, theirs = getattr(first, part.name), getattr(second, part.name)
        if isinstance(mine, Mapping):
            names = {**mine, **theirs}
            values[part.name] = {name: mine.get(name, 0) + sign * theirs.get(name, 0) for name in names}
        else:
            values[part.name] = mine + theirs if sign > 0 else mine - theirs
    return Tally(**values)

# SPDX-License-Identifier: Apache-2.0
"""Which keys get a row of their own. A key without one reads the table's default row and is not trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elastic_training._settings import Setting

# Counts of keys have 24 bits.
MOST_OCCURRENCES = 2**24 - 1


class Admission(Setting):
    """A filter that decides for each new key of a training batch."""

    family: ClassVar[str] = "admit"


@dataclass(frozen=True, eq=False)
class AlwaysAdmit(Admission):
    """Give every key a row when training first meets it."""

    kind: ClassVar[str] = "always"


@dataclass(frozen=True, eq=False)
class CountFilter(Admission):
    """Count the occurrences of each key exactly, and admit it at the threshold.

    Parameters
    ----------
    threshold : int
        Number of occurrences in training, from 1 (the first admits) to 2^24 - 1.

    Notes
    -----
    A key that has not been admitted costs 16 bytes and its place in the index.
    """

    threshold: int
    kind: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        self._whole("threshold", 1, MOST_OCCURRENCES)


@dataclass(frozen=True, eq=False)
class CountingFilter(Admission):
    """Count occurrences in a sketch of fixed size that ages, and admit a key at the threshold.

    Parameters
    ----------
    threshold : int
        Number of occurrences, from 1 to 15, because counts have four bits.
    expected_keys : int
        Number of distinct keys within a half-life, by which the sketch is sized.
    half_life_s : float or None [s]
        Time after which a count is worth half of it; None: counts stay.

    Notes
    -----
    Two keys may share a count, so a rare key is admitted early with small probability; no key is admitted late.
    """

    threshold: int
    expected_keys: int
    half_life_s: float | None = None
    kind: ClassVar[str] = "counting_filter"

    def __post_init__(self) -> None:
        self._whole("threshold", 1, 15)
        self._whole("expected_keys", 1, 2**40)
        if self.half_life_s is not None:
            self._number("half_life_s", 0, above=True)


@dataclass(frozen=True, eq=False)
class PoissonFilter(Admission):
    """Admit a key with the probability that it reaches the threshold within the horizon.

    Parameters
    ----------
    threshold : int
        Number of occurrences that make a row worth its memory.
    horizon : int or None
        Number of key occurrences of the feature over which a key must reach the threshold; None: as many as the feature
        has seen so far, so that the filter works on an endless stream.
    prior : {"fitted", "none"}
        "fitted": the rate of a key has a Gamma prior that the table fits to its feature.
        "none": the published estimator K/t, which admits nearly every key in the first tenth of the horizon.
    """

    threshold: int
    horizon: int | None = None
    prior: str = "fitted"
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        self._whole("threshold", 1, MOST_OCCURRENCES)
        if self.horizon is not None:
            self._whole("horizon", 1, 2**62)
        if self.prior not in ("fitted", "none"):
            raise ValueError(f"PoissonFilter: prior is {self.prior!r}, expected 'fitted' or 'none'")

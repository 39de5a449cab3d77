# SPDX-License-Identifier: Apache-2.0
"""Which keys get a row of their own. A key without one reads the table's default row and is not trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elastic_training._settings import Setting

# Counts of keys have 24 bits.
MOST_OCCURRENCES = 2**24 - 1
# Cells of a sketch count to 15 (src/admission/fingerprint_counts.h).
MOST_CELL_COUNT = 15
MOST_EXPECTED_KEYS = 2**36


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
        Number of distinct keys within a half-life, by which the sketch is sized: 24 bits for each.
    half_life_s : float or None [s]
        Time after which counts halve, rounded down.
    half_life_occurrences : float or None
        The same as a number of key occurrences of the table, for data that is trained faster than it came. Without
        both, counts stay.

    Notes
    -----
    A new key meets the count of another one with a probability of 0.5 % at the expected number of keys, and is then
    admitted early. With many more keys than expected, new keys displace those with the lowest counts.
    """

    threshold: int
    expected_keys: int
    half_life_s: float | None = None
    half_life_occurrences: float | None = None
    kind: ClassVar[str] = "counting_filter"

    def __post_init__(self) -> None:
        self._whole("threshold", 1, MOST_CELL_COUNT)
        self._whole("expected_keys", 1, MOST_EXPECTED_KEYS)
        if self.half_life_s is not None and self.half_life_occurrences is not None:
            raise ValueError("CountingFilter: half_life_s and half_life_occurrences are both set, expected at most one")
        if self.half_life_s is not None:
            self._number("half_life_s", 0, 1e9, above=True)
        if self.half_life_occurrences is not None:
            self._number("half_life_occurrences", 0, 1e15, above=True)


@dataclass(frozen=True, eq=False)
class PoissonFilter(Admission):
    """Admit a key before the threshold if it will probably reach it within the horizon.

    Parameters
    ----------
    threshold : int
        Number of occurrences that make a row worth its memory, from 2 to 255; to 15 with `expected_keys`.
    horizon : int or None
        Length of the stream in key occurrences of the table; None: as many as the table has seen so far come once
        more, so that the filter works on an endless stream.
    prior : {"fitted", "none"}
        "fitted": the rates of keys have a prior that the table fits to them; a key is admitted if its chance is at
        least one half. "none": the filter as published, which takes K / t for the rate of a key seen K times until t
        and draws; it admits nearly every key in the first tenth of the horizon.
    rare_share : float
        Share of the keys that end below the threshold that may be let in; while it is nearly used up, a higher chance
        than one half is required. Only with a fitted prior.
    expected_keys : int or None
        None: the table counts exactly, in records of 16 bytes per key. Otherwise counts take 24 bits for each of so
        many keys, with the errors of CountingFilter.

    Notes
    -----
    With the fitted prior, the chance is the tail of a negative binomial: after K occurrences until t the rate of a key
    is Gamma(K - discount, start + t), where discount < 1 and start are fitted by maximum likelihood to how counts rise.
    """

    threshold: int
    horizon: int | None = None
    prior: str = "fitted"
    rare_share: float = 0.05
    expected_keys: int | None = None
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        if self.horizon is not None:
            self._whole("horizon", 1, 10**15)
        if self.prior not in ("fitted", "none"):
            raise ValueError(f"PoissonFilter: prior is {self.prior!r}, expected 'fitted' or 'none'")
        self._number("rare_share", 1e-6, 1)
        if self.expected_keys is not None:
            self._whole("expected_keys", 1, MOST_EXPECTED_KEYS)
        self._whole("threshold", 2, 255 if self.expected_keys is None else MOST_CELL_COUNT)

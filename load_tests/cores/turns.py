# SPDX-License-Identifier: Apache-2.0
"""Find the highest rate that passes, by bisection in turns over several arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Bisection", "bisect_in_turns"]


@dataclass
class Bisection:
    """Enclose the highest rate that passes [requests/s]; `passed` is 0 if none has passed yet."""

    passed: float
    failed: float

    @property
    def next_rate(self) -> float:
        """Return the rate to try next."""
        return (self.passed + self.failed) / 2

    def record(self, rate: float, passed: bool) -> None:
        """Take in the result of a rate."""
        if passed:
            self.passed = max(self.passed, rate)
        else:
            self.failed = min(self.failed, rate)


def bisect_in_turns(
    arms: Sequence[str], high: float, steps: int, passes: Callable[[str, float], bool]
) -> dict[str, Bisection]:
    """Bisect from 0 to `high` for every arm; in each step, every arm has a turn, and none is always the last one.

    Parameters
    ----------
    high : float [requests/s]
        A rate that no arm can carry.
    passes : callable of arm and rate
    """
    found = {arm: Bisection(0.0, high) for arm in arms}
    for step in range(steps):
        first = step % len(arms)
        for arm in [*arms[first:], *arms[:first]]:
            rate = found[arm].next_rate
            found[arm].record(rate, passes(arm, rate))
    return found

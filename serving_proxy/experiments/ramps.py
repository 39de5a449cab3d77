# SPDX-License-Identifier: Apache-2.0
"""Weights that change over time.

A ramp's clock runs only while the version is ready, the experiment is not paused and the proxy runs, so that a share
never jumps after an interruption.
"""

from __future__ import annotations

from serving_proxy.records.models import Ramp

_LEAST_STEPS = 10
_MOST_STEPS = 200
_SECONDS_PER_STEP = 5.0


def steps(seconds: float) -> int:
    """Return the number of steps of a ramp: one in five seconds, from 10 to 200; at each step hosts read a file."""
    return int(min(_MOST_STEPS, max(_LEAST_STEPS, seconds / _SECONDS_PER_STEP)))


def weight_at(ramp: Ramp) -> int:
    """Return the weight after `elapsed` seconds: a staircase from `start` to `target`.

    Notes
    -----
    start + round((target - start) * floor(n * elapsed / seconds) / n), with n steps.
    """
    if finished(ramp):
        return ramp.target
    count = steps(ramp.seconds)
    return ramp.start + round((ramp.target - ramp.start) * int(count * ramp.elapsed / ramp.seconds) / count)


def advance(ramp: Ramp, seconds: float) -> Ramp:
    """Advance the ramp's clock by `seconds`."""
    return ramp.model_copy(update={"elapsed": min(ramp.seconds, ramp.elapsed + max(0.0, seconds))})


def finished(ramp: Ramp) -> bool:
    """Return whether the ramp has reached its target."""
    return ramp.elapsed >= ramp.seconds


def remaining(ramp: Ramp) -> float:
    """Return the seconds that the ramp has left."""
    return max(0.0, ramp.seconds - ramp.elapsed)

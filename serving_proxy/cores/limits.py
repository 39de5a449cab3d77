# SPDX-License-Identifier: Apache-2.0
"""Limits for the requests of variants whose cores are too few. Pure functions.

A request that would wait beyond its SLO is refused at once. So the queue of an overloaded variant stays short, and it
takes little memory and few threads from other versions. Baselines are never limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

# A limit is left as it is while the wanted limit is within this factor of it.
_NEAR = 1.5
# A limit that is no longer wanted stays for this time.
LIFTED_AFTER_S = 5.0


@dataclass(frozen=True)
class Limit:
    """A limit that is in force for a version.

    Attributes
    ----------
    most : int
        Number of requests that wait or run.
    reason : str
    unwanted_s : float [s]
        How long it has not been wanted.
    """

    most: int
    reason: str
    unwanted_s: float = 0.0


def follow(before: Mapping[str, Limit], wanted: Mapping[str, Limit], elapsed_s: float) -> dict[str, Limit]:
    """Return the limits from now on: set at once, changed if they are far off, and lifted after a while.

    Parameters
    ----------
    before : mapping of version to Limit
    wanted : mapping of version to Limit
        The limits that are wanted now.
    elapsed_s : float [s]
    """
    found = {}
    for name, limit in wanted.items():
        old = before.get(name)
        near = old is not None and old.most / _NEAR <= limit.most <= old.most * _NEAR
        found[name] = replace(old, unwanted_s=0.0) if near and old is not None else limit
    for name, old in before.items():
        unwanted_s = old.unwanted_s + elapsed_s
        if name not in wanted and unwanted_s < LIFTED_AFTER_S:
            found[name] = replace(old, unwanted_s=unwanted_s)
    return found


def for_each_host(limits: Mapping[str, Limit], hosts: int) -> dict[str, int]:
    """Divide limits among hosts, which get equal shares of the requests."""
    return {name: max(1, -(-limit.most // max(1, hosts))) for name, limit in limits.items()}


def changes(before: Mapping[str, Limit], after: Mapping[str, Limit]) -> dict[str, str]:
    """Return, for each version whose limit has changed, a text with the new limit and the reason."""
    found = {}
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if new is not None and (old is None or old.most != new.most):
            found[name] = f"at most {new.most} requests at a time; {new.reason}"
        elif new is None:
            found[name] = "the limit is lifted; its cores are enough"
    return found

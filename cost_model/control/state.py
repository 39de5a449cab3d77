# SPDX-License-Identifier: Apache-2.0
"""What the controller knows, sees and does; all values, nothing that acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["baseline", "tight", "pool", "own", "isolated"]


@dataclass(frozen=True)
class Settings:
    """How fast the controller believes and how reluctantly it moves.

    Parameters
    ----------
    rise_s, fall_s : float [s]
        Time constants of the estimate of demand upwards and downwards.
    own_cores : float [cores]
        A variant whose demand exceeds this gets cores of its own; it returns to the pool below half of it.
    tight_part : float
        Pooled variants due in less than this part of the longest objective form a pool of their own.
    move_part : float
        A pool changes only if its target is off by more than this part, and by at least one core.
    late_part : float
        Part of a baseline's requests, late or shed, at which it gets the most that lateness alone gives: three times
        the usual reserve.
    hold_s : float [s]
        After a move, a pool may not shrink for so long.
    slow_factor : float
        A variant whose service takes so many times what it did is isolated; it returns below half of the excess.
    watch_s : float [s]
        How long a move is on probation.
    lend_after : float
        Part of the objective that the oldest request has waited before its pool borrows idle cores.
    floor_part : float
        The baseline never has less than this part of the cores that its plan gave it.
    wait_part : float
        Part of the objective after which a variant's request that still waits is shed: what is short by two per cent
        then sheds two per cent, where a full queue would make everything late.
    """

    rise_s: float = 2.0
    fall_s: float = 12.0
    own_cores: float = 5.0
    tight_part: float = 0.4
    move_part: float = 0.15
    late_part: float = 0.1
    hold_s: float = 10.0
    slow_factor: float = 2.0
    watch_s: float = 3.0
    lend_after: float = 0.02
    floor_part: float = 0.5
    wait_part: float = 0.3


@dataclass(frozen=True)
class ControlledTenant:
    """What is known of a model beforehand: the time of a request alone [µs], the objective, the expected rate."""

    name: str
    role: Literal["baseline", "variant"]
    service_us: float
    slo_ms: float
    qps: float


@dataclass(frozen=True)
class Observation:
    """What a host saw of one model since the last step.

    Parameters
    ----------
    arrivals, completed, sheds, missed : int
        Requests; missed are those that were late or shed.
    queued, in_flight : int
        Now.
    busy_us : float [µs]
        Core time of what was completed or begun.
    """

    arrivals: int = 0
    completed: int = 0
    sheds: int = 0
    missed: int = 0
    queued: int = 0
    in_flight: int = 0
    busy_us: float = 0.0


@dataclass(frozen=True)
class Pool:
    """Models that share cores; `cores` are indices into the machine's, which the pool owns and lends while idle."""

    name: str
    kind: Kind
    models: tuple[str, ...]
    cores: tuple[int, ...]
    lends: bool = True
    borrows: bool = True


@dataclass(frozen=True)
class Move:
    """One change, with its reason; growing pools stand before shrinking ones."""

    pool: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Estimate:
    """What is believed of one model.

    Parameters
    ----------
    qps : float [requests/s]
    service_us, usual_us : float [µs]
        Of a request, and what it was when all was well.
    slow_s, well_s : float [s]
        For how long it has been slower than that, and not.
    waiting : float
        Requests in its queue.
    late : float
        Part of its requests that were late or shed.
    """

    qps: float
    service_us: float
    usual_us: float
    slow_s: float = 0.0
    well_s: float = 0.0
    waiting: float = 0.0
    late: float = 0.0

    @property
    def cores(self) -> float:
        """Demand: busy cores that the rate keeps [cores]."""
        return self.qps * self.service_us * 1e-6

    @property
    def usual_cores(self) -> float:
        """Demand at the service time of when all was well [cores]."""
        return self.qps * self.usual_us * 1e-6

    @property
    def pressure(self) -> float:
        """Demand with what waits: busy cores for a second that ends without a queue [cores]."""
        return self.cores + self.waiting * self.service_us * 1e-6


@dataclass(frozen=True)
class Trial:
    """A change on probation: what was before it and after it, and how much was missed before."""

    since_s: float
    pools: tuple[Pool, ...]
    missed_before: float
    after: tuple[Pool, ...]
    lent: bool = False


@dataclass(frozen=True)
class ControlState:
    """Everything the controller remembers.

    Parameters
    ----------
    pools : tuple of Pool
    overrides : mapping of pool or model to int
        Cores that an operator has fixed.
    limits : mapping of model to int
        Requests in the system beyond which new ones of a model are shed.
    lent : bool
        Baselines may use every core. Whoever applies pools decides that, where hosts lend no idle cores by themselves.
    """

    cores: tuple[int, ...]
    tenants: Mapping[str, ControlledTenant]
    pools: tuple[Pool, ...]
    estimates: Mapping[str, Estimate]
    floor: int
    settings: Settings = field(default_factory=Settings)
    overrides: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    held_until_s: Mapping[str, float] = field(default_factory=dict)
    trial: Trial | None = None
    missed_part: float = 0.0
    blocked_until_s: float = 0.0
    lent: bool = False

    def pool_of(self, model: str) -> Pool:
        """Return the pool that a model is in."""
        return next(pool for pool in self.pools if model in pool.models)


def in_use(pools: Sequence[Pool], lent: bool) -> tuple[Pool, ...]:
    """Return pools with the cores that they may use in the place of those that they own."""
    every = tuple(sorted({core for pool in pools for core in pool.cores}))
    return tuple(replace(pool, cores=every) if lent and pool.kind == "baseline" else pool for pool in pools)


def pool_name(kind: Kind, models: Sequence[str]) -> str:
    """Name a pool: after its model where it has one by design, else after its kind."""
    if kind in {"own", "isolated"} or (kind == "baseline" and len(models) == 1):
        return models[0]
    return kind

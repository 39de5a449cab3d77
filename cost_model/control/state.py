# SPDX-License-Identifier: Apache-2.0
"""Define the settings, state, observations and moves of the controller; all are plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["baseline", "tight", "pool", "own", "isolated"]


@dataclass(frozen=True)
class Settings:
    """Set how fast estimates change and how readily the controller moves cores.

    Parameters
    ----------
    rise_s, fall_s : float [s]
        Time constants of the demand estimate for increases and decreases.
    own_cores : float [cores]
        A variant whose demand exceeds this gets its own cores; it returns to the pool below half of this.
    tight_part : float
        Pooled variants whose SLO is shorter than this part of the longest SLO form a separate pool.
    move_part : float
        A pool changes only if its size differs from its target by more than this part, and by at least one core.
    late_part : float
        Part of a baseline's requests, late or shed, at which it gets the largest reserve that lateness alone can cause:
        three times the usual reserve.
    hold_s : float [s]
        After a move, a pool may not shrink for this time.
    slow_factor : float
        A variant whose service time reaches this multiple of its usual value is isolated; it returns when
        less than half of that excess is left.
    watch_s : float [s]
        How long a move is on probation.
    lend_after : float
        Part of the SLO that the oldest request must have waited before its pool borrows idle cores.
    floor_part : float
        The baseline always keeps at least this part of the cores that its plan gave it.
    wait_part : float
        Part of the SLO after which a waiting request of a variant is shed: a shortage of two percent then sheds two
        percent, while a full queue would delay every request beyond the SLO.
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
    """Describe a model in advance: the time of a single request [µs], the SLO, the expected rate."""

    name: str
    role: Literal["baseline", "variant"]
    service_us: float
    slo_ms: float
    qps: float


@dataclass(frozen=True)
class Observation:
    """Contain the observations of a host about one model since the last step.

    Parameters
    ----------
    arrivals, completed, sheds, missed : int
        Numbers of requests; `missed` are those that were late or shed.
    queued, in_flight : int
        Current numbers.
    busy_us : float [µs]
        Core time of requests that were completed or started.
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
    """Group models that share cores; `cores` are indices of cores, which the pool owns and lends while idle."""

    name: str
    kind: Kind
    models: tuple[str, ...]
    cores: tuple[int, ...]
    lends: bool = True
    borrows: bool = True


@dataclass(frozen=True)
class Move:
    """Describe one change with its reason; growing pools come before shrinking ones."""

    pool: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Estimate:
    """Contain the estimates for one model.

    Parameters
    ----------
    qps : float [requests/s]
    service_us, usual_us : float [µs]
        Service time of a request: now, and its usual value.
    slow_s, well_s : float [s]
        For how long it has been slower than usual, and not slower.
    waiting : float
        Number of requests in its queue.
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
        """Return the demand: the number of cores that the rate keeps busy [cores]."""
        return self.qps * self.service_us * 1e-6

    @property
    def usual_cores(self) -> float:
        """Return the demand at the usual service time [cores]."""
        return self.qps * self.usual_us * 1e-6

    @property
    def pressure(self) -> float:
        """Return the demand including waiting requests: cores that empty the queue within one second [cores]."""
        return self.cores + self.waiting * self.service_us * 1e-6


@dataclass(frozen=True)
class Trial:
    """Record a change on probation: the pools before and after it, and the part of requests missed before."""

    since_s: float
    pools: tuple[Pool, ...]
    missed_before: float
    after: tuple[Pool, ...]
    lent: bool = False


@dataclass(frozen=True)
class ControlState:
    """Contain everything that the controller remembers.

    Parameters
    ----------
    pools : tuple of Pool
    overrides : mapping of pool or model to int
        Numbers of cores that an operator has fixed.
    limits : mapping of model to int
        Requests in the system beyond which new requests of a model are shed.
    lent : bool
        Baselines may use every core. The program that applies pools sets this if hosts do not lend idle cores.
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
        """Return the pool that contains a model."""
        return next(pool for pool in self.pools if model in pool.models)


def in_use(pools: Sequence[Pool], lent: bool) -> tuple[Pool, ...]:
    """Return pools with the cores that they may use instead of the cores that they own."""
    every = tuple(sorted({core for pool in pools for core in pool.cores}))
    return tuple(replace(pool, cores=every) if lent and pool.kind == "baseline" else pool for pool in pools)


def pool_name(kind: Kind, models: Sequence[str]) -> str:
    """Return the name of a pool: the model's name if the model has its own pool by design, otherwise its kind."""
    if kind in {"own", "isolated"} or (kind == "baseline" and len(models) == 1):
        return models[0]
    return kind

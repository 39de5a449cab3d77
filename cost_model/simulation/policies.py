# SPDX-License-Identifier: Apache-2.0
"""Decide which models may use which cores: five policies with one interface.

`shared`
    Every model may use every core, like default servers on one machine: each has a pool of one thread per core, and
    the kernel lets the threads take turns.
`static`
    Each model has its own cores, in proportion to its demand at the base level.
`baseline-pool`
    The published design: the baseline has its own cores, all variants share the rest. The split is the one that
    carries most at steady base traffic, found by simulation: the best choice in advance.
`planned`
    The planner's allocation for the same rates, with its threads per session; it does not change.
`dynamic`
    The controller's pools: ownership follows demand every second; in between, idle cores are lent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from cost_model.control import ControlledTenant, ControlState, Observation, Pool, Settings, begin, step
from cost_model.machine import Machine
from cost_model.simulation.inputs import Inputs
from cost_model.simulation.slices import SLICE_US
from cost_model.workload import Workload

POLICIES = ("shared", "static", "baseline-pool", "planned", "dynamic")


@dataclass(frozen=True)
class Assignment:
    """Assign cores and models to labeled groups, and define which groups lend and borrow.

    A request that has waited for more than `wait_part` [models] of its SLO is dropped; None means the whole SLO.
    `threads` contains the threads per session of models that have more than one; only the initial value counts.
    `slice_us` [µs] is how long a thread runs while others wait for its core, if each model has a pool of threads; 0 if
    requests run to their end, in the order of their arrival. Only the initial value counts.
    """

    labels: tuple[str, ...]
    core_owner: tuple[int, ...]
    group_of: tuple[int, ...]
    lends: tuple[bool, ...]
    borrows: tuple[bool, ...]
    lend_after_us: tuple[float, ...]
    oversubscribed: tuple[bool, ...]
    limit: tuple[int, ...] | None = None
    wait_part: tuple[float, ...] | None = None
    threads: Mapping[str, int] = field(default_factory=dict)
    slice_us: float = 0.0


class Policy(Protocol):
    """Define what `simulate` needs from a policy."""

    @property
    def name(self) -> str:
        """Return the name of the policy."""

    def start(self, inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        """Return the assignment at the beginning."""

    def step(self, now_s: float, state: Any, inputs: Inputs) -> tuple[Assignment | None, Sequence[Any]]:
        """Return the assignment from now on (None: no change) and the moves that led to it."""


def fixed_assignment(
    labels: Sequence[str],
    core_owner: Sequence[int],
    group_of: Sequence[int],
    *,
    oversubscribed: bool = False,
) -> Assignment:
    """Create an assignment without lending."""
    none = (False,) * len(labels)
    return Assignment(
        tuple(labels), tuple(core_owner), tuple(group_of), none, none, (0.0,) * len(labels),
        (oversubscribed,) * len(labels),
    )  # fmt: skip


@dataclass(frozen=True)
class Fixed:
    """A policy that never changes."""

    name: str
    make: Callable[[Inputs, Machine, float], Assignment]

    def start(self, inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        return self.make(inputs, machine, qps)

    def step(self, now_s: float, state: Any, inputs: Inputs) -> tuple[Assignment | None, Sequence[Any]]:
        return None, ()


@dataclass(frozen=True)
class _TimeSliced:
    """Run a policy with a pool of threads for each model."""

    policy: Policy

    @property
    def name(self) -> str:
        return self.policy.name

    def start(self, inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        return replace(self.policy.start(inputs, machine, qps), slice_us=SLICE_US)

    def step(self, now_s: float, state: Any, inputs: Inputs) -> tuple[Assignment | None, Sequence[Any]]:
        return self.policy.step(now_s, state, inputs)


def time_sliced(policy: Policy) -> Policy:
    """Return the policy on hosts as they are: each model has its own threads, which take turns on the group's cores."""
    return _TimeSliced(policy)


def least_cores(policy: str, workload: Workload) -> int:
    """Return the fewest cores with which a policy has cores for every model."""
    if policy == "static":
        return len(workload.models)
    return len({model.role for model in workload.models}) if policy == "baseline-pool" else 1


def shared_policy() -> Policy:
    """Create `shared`."""

    def make(inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        return fixed_assignment(["all"], [0] * len(machine.cores), [0] * len(inputs.names), oversubscribed=True)

    return time_sliced(Fixed("shared", make))


def static_policy() -> Fixed:
    """Create `static`: whole cores by demand, by largest remainder, at least one per model."""

    def make(inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        count, cores = len(inputs.names), len(machine.cores)
        demand = inputs.shares * inputs.mean_us
        exact = demand / demand.sum() * cores
        sizes = np.maximum(1, np.floor(exact)).astype(int)
        while sizes.sum() != cores:
            off = exact - sizes
            if sizes.sum() < cores:
                sizes[int(np.argmax(off))] += 1
            else:
                sizes[int(np.argmin(np.where(sizes > 1, off, np.inf)))] -= 1
        return fixed_assignment(inputs.names, np.repeat(np.arange(count), sizes).tolist(), range(count))

    return Fixed("static", make)


def baseline_pool_policy(workload: Workload, baseline_cores: int) -> Fixed:
    """Create `baseline-pool` with this number of cores for the baseline."""

    def make(inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        owners = [0 if core < baseline_cores else 1 for core in range(len(machine.cores))]
        return fixed_assignment(
            ["baseline", "pool"], owners, [0 if model.role == "baseline" else 1 for model in workload.models]
        )

    return Fixed("baseline-pool", make)


def planned_policy(workload: Workload, interference: Any) -> Fixed:
    """Create `planned`: the planner's allocation for these rates."""

    def make(inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        from cost_model.planning import plan

        # Use every model's part of the total, as in the simulated traffic, even for models with their own rate.
        rates = dict(zip(inputs.names, (inputs.shares * qps).tolist(), strict=True))
        planned = plan(workload, machine, rates, interference)
        places = {name: place for place, allocation in enumerate(planned.allocations) for name in allocation.models}
        owners = [0] * len(machine.cores)
        for place, allocation in enumerate(planned.allocations):
            for core in allocation.cores:
                owners[core] = place
        labels = [
            allocation.models[0] if len(allocation.models) == 1 else f"{len(allocation.models)} models"
            for allocation in planned.allocations
        ]
        threads = {
            name: allocation.threads_per_session for allocation in planned.allocations for name in allocation.models
        }
        more = {name: count for name, count in threads.items() if count > 1}
        return replace(fixed_assignment(labels, owners, [places[name] for name in inputs.names]), threads=more)

    return Fixed("planned", make)


class Dynamic:
    """Run `dynamic`: the same controller as the proxy, on observations of the simulated hosts."""

    name = "dynamic"

    def __init__(self, workload: Workload, settings: Settings | None = None, *, lending: bool = True) -> None:
        self.workload = workload
        self.settings = settings or Settings()
        self.lending = lending
        self.control: ControlState | None = None
        self._before: dict[str, Any] = {}

    def start(self, inputs: Inputs, machine: Machine, qps: float) -> Assignment:
        tenants = [
            ControlledTenant(
                tenant.name,
                "baseline" if tenant.role == "baseline" else "variant",
                float(mean),
                tenant.slo_p99_ms,
                rate,
            )
            for tenant, mean, rate in zip(
                self.workload.models, inputs.mean_us, (inputs.shares * qps).tolist(), strict=True
            )
        ]
        self.control = begin(range(len(machine.cores)), tenants, settings=self.settings)
        self._before = {}
        return self._assignment()

    def step(self, now_s: float, state: Any, inputs: Inputs) -> tuple[Assignment | None, Sequence[Any]]:
        assert self.control is not None
        seen = {name: getattr(state, name).copy() for name in ("arrived", "completed", "dropped", "missed", "busy_us")}
        change = {name: value - self._before.get(name, 0) for name, value in seen.items()}
        self._before = seen
        rows = zip(
            self.control.tenants,
            *(change[name].tolist() for name in ("arrived", "completed", "dropped", "missed")),
            state.queued.tolist(),
            state.in_system.tolist(),
            change["busy_us"].tolist(),
            strict=True,
        )
        observation = {name: Observation(*rest) for name, *rest in rows}
        before = self.control
        self.control, moves = step(self.control, observation, now_s)
        changed = bool(moves) or (self.control.limits, self.control.pools) != (before.limits, before.pools)
        return (self._assignment() if changed else None), moves

    def _assignment(self) -> Assignment:
        assert self.control is not None
        control = self.control
        owner = {core: place for place, pool in enumerate(control.pools) for core in pool.cores}
        # As on hosts, models whose pool has no core, because there are too few, share the cores of other variants.
        others = next((place for place, pool in enumerate(control.pools) if pool.cores and pool.kind != "baseline"), 0)
        group = {
            name: place if pool.cores else others for place, pool in enumerate(control.pools) for name in pool.models
        }
        return Assignment(
            tuple(pool.name for pool in control.pools),
            tuple(owner.get(core, 0) for core in control.cores),
            tuple(group[name] for name in control.tenants),
            tuple(self.lending and pool.lends for pool in control.pools),
            tuple(self.lending and pool.borrows for pool in control.pools),
            tuple(self._lend_after_us(pool) for pool in control.pools),
            (False,) * len(control.pools),
            tuple(control.limits.get(name, 2**31 - 1) for name in control.tenants),
            tuple(1.0 if tenant.role == "baseline" else self.settings.wait_part for tenant in control.tenants.values()),
        )

    def _lend_after_us(self, pool: Pool) -> float:
        assert self.control is not None
        slo_ms = min(self.control.tenants[name].slo_ms for name in pool.models)
        return self.settings.lend_after * slo_ms * 1e3

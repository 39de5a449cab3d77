# SPDX-License-Identifier: Apache-2.0
"""Combine plans and control: from the deployed versions and the hosts' counters to the cores of each version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from cost_model.control import ControlledTenant, ControlState, Move, Observation, Pool, begin, follow, step
from cost_model.control.controller import list_moves
from cost_model.control.state import Estimate, Trial, in_use
from cost_model.control.targets import group_models
from cost_model.machine import Machine
from cost_model.planning import Plan
from cost_model.service import ServiceTable
from serving_proxy.cores import learning, limits, planning
from serving_proxy.cores.layout import borrows, cores_of, cpus_of
from serving_proxy.cores.limits import Limit
from serving_proxy.cores.observations import within_cores
from serving_proxy.cores.tenants import DeployedTenant

Mode = Literal["plan", "control"]
# A plan is made after a deployment, and again once its requests have been counted for this time.
SETTLED_S = 30.0
# In mode `control`, if no rates are known, no version is pinned until this much of its traffic has been seen.
LOOK_S = 5.0


class Allocator:
    """Decides which version has which cores; reads no files and no clock.

    Parameters
    ----------
    mode : "plan" or "control"
    kept : mapping, optional
        The result of `to_json` of the previous allocator.
    """

    def __init__(self, mode: Mode, kept: Any = None) -> None:
        self.mode = mode
        known = kept if isinstance(kept, dict) else {}
        self.costs = learning.from_json(known.get("costs"))
        self._rates = learning.rates_from_json(known.get("rates"))
        self.plan: Plan | None = None
        self.state: ControlState | None = None
        self.machine: Machine | None = None
        self.reasons: dict[str, str] = {}
        self.limits: dict[str, Limit] = {}
        self.moves_made = 0
        self._tenants: tuple[DeployedTenant, ...] = ()
        self._profiled: dict[str, ServiceTable] = {}
        self._measured: dict[str, float] = {}
        # Service times without borrowed cores.
        self._own_us: dict[str, float] = {}
        self._settled_at: float | None = None
        self._blind = self._divided = self._apart = False

    def deploy(
        self,
        tenants: Sequence[DeployedTenant],
        machine: Machine,
        profiles: Mapping[str, ServiceTable],
        now_s: float,
        apart: bool = False,
    ) -> tuple[Move, ...]:
        """Plan again if the deployed versions have changed, or if it is time; return the moves.

        Parameters
        ----------
        tenants : sequence of DeployedTenant
            At least one.
        machine : Machine
            The cores that can be divided.
        profiles : mapping of name to ServiceTable
            Profiles of the versions that have one.
        now_s : float [s]
        apart : bool
            There are other cores, which operators have given to other versions.
        """
        self._apart = apart
        known = dict(profiles)
        same = tuple(tenants) == self._tenants and machine == self.machine and known == self._profiled
        settled = self._settled_at is not None and now_s >= self._settled_at
        if same and not settled:
            return ()
        paths = {tenant.name: tenant.path for tenant in tenants}
        self.costs = {name: cost for name, cost in self.costs.items() if paths.get(name) == cost.path}
        reason = "planned for the measured load" if same else "planned for the deployed versions"
        first = self.state is None and not any(self._rates.get(tenant.name) for tenant in tenants)
        self._blind = (first or self._blind) and not settled
        moves = self._replan(tuple(tenants), machine, profiles, reason, now_s)
        if not self._blind:
            self._settled_at = now_s + SETTLED_S if self.mode == "plan" and not same else None
        elif self._settled_at is None:
            self._settled_at = now_s + (SETTLED_S if self.mode == "plan" else LOOK_S)
        self._profiled = known
        return moves

    def observe(self, seen: Mapping[str, Observation], now_s: float, elapsed_s: float) -> tuple[Move, ...]:
        """Update the estimates from the hosts' counters, and in mode `control` move cores if needed."""
        if self.state is None:
            return ()
        known = {name: observation for name, observation in seen.items() if name in self.state.tenants}
        known = within_cores(known, self._sharing(), elapsed_s)
        paths = {tenant.name: tenant.path for tenant in self._tenants}
        estimates = learning.learn(self.costs, self.state.estimates, known, paths)
        state = replace(self.state, estimates=self._forgive_slowness(estimates))
        moves: tuple[Move, ...] = ()
        # In mode `plan`, estimates are only updated for the next plan; nothing moves until then.
        still = self.mode == "plan" or self._blind
        if still:
            state = follow(state, known, elapsed_s)
        else:
            state, moves = step(state, known, now_s, elapsed_s)
        self.state = replace(state, estimates=learning.follow(self.costs, state.estimates, elapsed_s))
        if still:
            return ()
        entered = self._record_moves((*moves, *self._update_borrowing(now_s)))
        self.limits = limits.follow(self.limits, self._wanted_limits(), elapsed_s)
        return entered

    @property
    def cores(self) -> dict[str, tuple[int, ...]]:
        """Return the cores of each version, as indices of the machine's cores; empty if nothing is divided."""
        there = self.state is not None and not self._blind
        return cores_of(self.pools, self.borrowing, self._apart) if there else {}

    @property
    def cpusets(self) -> dict[str, str]:
        """Return the CPUs of each version."""
        return {} if self.machine is None else cpus_of(self.cores, self.machine)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools of versions that share cores."""
        return () if self.state is None else self.state.pools

    @property
    def borrowing(self) -> bool:
        """Return whether baselines may use the variants' cores as well."""
        return self.state is not None and self.state.lent

    @property
    def tenants(self) -> tuple[DeployedTenant, ...]:
        """Return the versions that cores are divided among."""
        return self._tenants

    def source_of(self, tenant: DeployedTenant) -> learning.Source:
        """Return where the core time of a version's requests comes from."""
        return learning.source_of(tenant, self.costs, self._measured)[0]

    def demand(self) -> dict[str, float]:
        """Return the busy cores that each pool's requests need."""
        if self.state is None:
            return {}
        found = self.state.estimates
        return {pool.name: sum(found[name].cores for name in pool.models) for pool in self.state.pools}

    def stop(self) -> None:
        """Release all cores: there is nothing to divide."""
        self.state = self.plan = self.machine = None
        self.reasons, self.limits, self._tenants, self._settled_at = {}, {}, (), None
        self._blind = self._divided = False

    def to_json(self) -> dict[str, Any]:
        """Return what was learned, for the next proxy."""
        found = {} if self.state is None else self.state.estimates
        rates = {name: round(estimate.qps, 1) for name, estimate in found.items()} or self._rates
        return {"costs": learning.to_json(self.costs), "rates": rates}

    def _replan(
        self,
        tenants: tuple[DeployedTenant, ...],
        machine: Machine,
        profiles: Mapping[str, ServiceTable],
        reason: str,
        now_s: float,
    ) -> tuple[Move, ...]:
        self._measured = measured = {name: planning.profiled_us(profile) for name, profile in profiles.items()}
        old = self._hand_over_rates(tenants)
        rates = {
            tenant.name: old[tenant.name].qps if tenant.name in old else self._rates.get(tenant.name, 0.0)
            for tenant in tenants
        }
        controlled = [
            ControlledTenant(
                tenant.name,
                tenant.role,
                learning.cost_us(tenant, self.costs, measured),
                tenant.slo_ms,
                rates[tenant.name],
            )
            for tenant in tenants
        ]
        # For versions without any requests so far, use the present expectation.
        old = {name: estimate for name, estimate in old.items() if name in self.costs and self.costs[name].completed}
        plan = planning.make_plan(controlled, rates, profiles, machine)
        before = self.pools if machine == self.machine and self._divided else ()
        if self.mode == "plan":
            pools = planning.pools_of_plan(plan)
        else:
            state = begin(range(len(machine.cores)), controlled)
            isolated = frozenset(name for pool in before if pool.kind == "isolated" for name in pool.models)
            kept = {tenant.name: old.get(tenant.name, state.estimates[tenant.name]) for tenant in tenants}
            grouped = group_models(state.tenants, kept, state.settings, before, isolated & set(kept))
            pools = planning.resize_pools(plan, grouped, before)
        state = begin(range(len(machine.cores)), controlled, [(pool.kind, pool.models, pool.cores) for pool in pools])
        kept = {name: old.get(name, estimate) for name, estimate in state.estimates.items()}
        self.state = self._begin_trial(replace(state, pools=pools, estimates=kept), before, now_s)
        self.plan, self.machine, self._tenants = plan, machine, tenants
        variants = {tenant.name for tenant in tenants if tenant.role == "variant"}
        self.limits = {name: limit for name, limit in self.limits.items() if name in variants}
        if self._blind:
            return ()
        self._divided = True
        why = "; ".join([reason, *plan.reasons[:2]])
        return self._record_moves((*list_moves(before, pools, why), *self._update_borrowing(now_s)))

    def _begin_trial(self, state: ControlState, before: tuple[Pool, ...], now_s: float) -> ControlState:
        """Keep the controller's memory of its moves, and let it judge this plan as a move if it can be undone."""
        known = self.state
        if known is None or not before:
            return state
        trial = known.trial
        if {name for pool in before for name in pool.models} == state.tenants.keys() and state.pools != before:
            trial = Trial(now_s, before, known.missed_part, state.pools, known.lent)
        return replace(
            state,
            trial=trial,
            lent=known.lent,
            missed_part=known.missed_part,
            held_until_s=known.held_until_s,
            blocked_until_s=known.blocked_until_s,
        )

    def _wanted_limits(self) -> dict[str, Limit]:
        """Return the limits that the controller wants; empty if nothing is divided."""
        assert self.state is not None
        there, demand = self.cores, self.demand()
        found = {}
        for pool in self.pools:
            cores = len(pool.cores)
            reason = (
                f"{pool.name} has {cores} core{'' if cores == 1 else 's'} for a demand of {demand[pool.name]:.1f}, "
                "and more requests would miss the SLO"
                if cores
                else f"{pool.name} is slower than usual, and there are too few cores to give it one of its own"
            )
            for name in pool.models:
                if name in self.state.limits and name in there:
                    found[name] = Limit(self.state.limits[name], reason)
        return found

    def _update_borrowing(self, now_s: float) -> tuple[Move, ...]:
        """Let baselines run on every core, or end that, and return the moves; mode `plan` never does so."""
        assert self.state is not None
        lent, pools = self.state.lent, self.pools
        if self.mode == "plan" or len(pools) < 2 or now_s < self.state.blocked_until_s:
            return ()
        own = self._on_own_cores()
        pressure = {pool.name: sum(own[name].pressure for name in pool.models) for pool in pools}
        why = borrows(pools, self.demand(), pressure, lent)
        if (why is not None) == lent:
            return ()
        # Borrowing is on probation as a move is, and shares the trial of a move of the same step.
        trial = self.state.trial
        if trial is None or trial.since_s != now_s:
            trial = Trial(now_s, pools, self.state.missed_part, pools, lent)
        self.state = replace(self.state, lent=not lent, trial=trial, estimates=own)
        reason = why or "its own cores are enough, and the others are in use"
        return list_moves(in_use(pools, lent), in_use(pools, not lent), reason)

    def _on_own_cores(self) -> dict[str, Estimate]:
        """Return the estimates with the service times that versions had before baselines borrowed cores.

        Requests take longer on cores that others keep busy. That would look like a need for these cores, and borrowing
        would never end.
        """
        assert self.state is not None
        estimates = self.state.estimates
        if not self.borrowing:
            self._own_us = {name: estimate.service_us for name, estimate in estimates.items()}
        return {
            name: replace(estimate, service_us=self._own_us.get(name, estimate.usual_us))
            if self.state.tenants[name].role == "baseline"
            else estimate
            for name, estimate in estimates.items()
        }

    def _hand_over_rates(self, tenants: tuple[DeployedTenant, ...]) -> dict[str, Estimate]:
        """Return the estimates, with a former baseline's requests added to the version that replaces it."""
        found = {} if self.state is None else dict(self.state.estimates)
        before = {tenant.model: tenant.name for tenant in self._tenants if tenant.role == "baseline"}
        for tenant in tenants:
            former = before.get(tenant.model, tenant.name)
            if tenant.role == "baseline" and former != tenant.name and former in found and tenant.name in found:
                qps = found[former].qps + found[tenant.name].qps
                found[tenant.name] = replace(found[tenant.name], qps=qps)
                found[former] = replace(found[former], qps=0.0)
        return found

    def _record_moves(self, moves: tuple[Move, ...]) -> tuple[Move, ...]:
        self.moves_made += len(moves)
        self.reasons |= {move.pool: move.reason for move in moves}
        names = {pool.name for pool in self.pools}
        self.reasons = {name: reason for name, reason in self.reasons.items() if name in names}
        return moves

    def _sharing(self) -> list[tuple[list[str], int]]:
        """Return the versions that run on the same cores, with the number of these cores."""
        assert self.state is not None
        cores = self.cores
        groups: dict[tuple[int, ...], list[str]] = {}
        for name in self.state.tenants:
            groups.setdefault(cores.get(name, self.state.cores), []).append(name)
        return [(names, len(mine)) for mine, names in groups.items()]

    def _forgive_slowness(self, estimates: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """Return estimates in which no version counts as slow while baselines share the variants' cores."""
        return {
            name: replace(estimate, slow_s=0.0) if self.borrowing else estimate for name, estimate in estimates.items()
        }

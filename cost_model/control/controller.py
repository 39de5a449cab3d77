# SPDX-License-Identifier: Apache-2.0
"""Compute one step of control: a pure function of the state, the observations and the time.

There are two time scales. Within a second, the host (not this code) lends idle cores, so a burst needs no move. Once
per second, ownership follows lasting demand. Ownership decides which models keep their SLO when cores are short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cost_model.control.state import (
    ControlledTenant,
    ControlState,
    Estimate,
    Move,
    Observation,
    Pool,
    Settings,
    Trial,
    in_use,
)
from cost_model.control.targets import group_models, hand_out, load_of, need, target_sizes

_ENOUGH = 40
# From this many standard errors on, the mean of a second's requests is believed, however few they are.
_SURPRISE = 3.0


def step(
    state: ControlState, observation: Mapping[str, Observation], now_s: float, elapsed_s: float = 1.0
) -> tuple[ControlState, tuple[Move, ...]]:
    """Decide which pool owns which cores from now on.

    Parameters
    ----------
    state : ControlState
    observation : mapping of model to Observation
        Observations since the last step; a model that is missing received no requests.
    now_s : float [s]
    elapsed_s : float [s]
        Time since the last step.

    Returns
    -------
    state : ControlState
    moves : tuple of Move
        Growing pools come before shrinking ones, so that a host that applies them in order never leaves a pool short.
    """
    state = follow(state, observation, elapsed_s)
    settings, estimates = state.settings, state.estimates
    state, undone = _judge_trial(state, observation, now_s)
    if undone:
        return state, undone
    isolated, apart = _models_to_isolate(state), _isolated_models(state.pools)
    if now_s < state.blocked_until_s and isolated == apart:
        grouped = [(pool.kind, pool.models) for pool in state.pools]
    else:
        grouped = group_models(state.tenants, estimates, settings, state.pools, isolated)
    sizes = target_sizes(grouped, estimates, len(state.cores), state.floor, state.overrides, settings)
    wanted = hand_out(grouped, sizes, state.cores, state.pools)
    limits = _limits(state, isolated, wanted)
    reason = _reason(state, wanted, now_s)
    if reason is None:
        return replace(state, limits=limits), ()
    moves = list_moves(state.pools, wanted, reason)
    changed = {move.pool for move in moves if len(move.after) > len(move.before)}
    held = {name: until for name, until in state.held_until_s.items() if until > now_s}
    held |= dict.fromkeys(changed, now_s + settings.hold_s)
    # Isolation is decided by service times, not by the requests that a model misses while isolated.
    trial = Trial(now_s, state.pools, state.missed_part, wanted, state.lent) if isolated == apart else None
    return replace(state, pools=wanted, held_until_s=held, trial=trial, limits=limits), moves


def follow(state: ControlState, observation: Mapping[str, Observation], elapsed_s: float = 1.0) -> ControlState:
    """Update the estimates from observations without moving any core."""
    estimates = {
        name: _estimate(state.estimates[name], tenant, observation.get(name, Observation()), state.settings, elapsed_s)
        for name, tenant in state.tenants.items()
    }
    missed = _missed_part(state, observation)
    return replace(state, estimates=estimates, missed_part=0.7 * state.missed_part + 0.3 * missed)


def _estimate(
    before: Estimate, tenant: ControlledTenant, seen: Observation, settings: Settings, elapsed_s: float
) -> Estimate:
    """Update rate (up at once, down slowly) and service time (many or surprising requests count more)."""
    rate = seen.arrivals / elapsed_s
    # Random variation of a count is not a rise.
    rises = rate > before.qps + math.sqrt(max(before.qps, 1.0) / elapsed_s)
    part = 1 - math.exp(-elapsed_s / (settings.rise_s if rises else settings.fall_s))
    qps = before.qps + part * (rate - before.qps)
    service, slow_s, well_s = before.service_us, before.slow_s, before.well_s
    if seen.completed > 0:
        now_us = seen.busy_us / seen.completed
        trust = min(0.5, seen.completed / (seen.completed + 4 * _ENOUGH))
        # How far the mean is off, in standard errors of requests whose times vary as much as exponential ones do.
        if abs(math.log(max(now_us, 1.0) / max(service, 1.0))) * math.sqrt(seen.completed) > _SURPRISE:
            trust = 0.5
        service += trust * (now_us - service)
        slow = service > settings.slow_factor * before.usual_us
        well = service < (1 + (settings.slow_factor - 1) / 2) * before.usual_us
        # The slower the model, the less time is needed to believe it.
        excess = (service / max(before.usual_us, 1e-9) - 1) / (settings.slow_factor - 1)
        slow_s, well_s = (slow_s + elapsed_s * excess if slow else 0.0), (well_s + elapsed_s if well else 0.0)
    quick, slowly = (1 - math.exp(-elapsed_s / time_s) for time_s in (settings.rise_s, settings.fall_s))
    waiting = before.waiting + quick * (seen.queued - before.waiting)
    missed = seen.missed / seen.arrivals if seen.arrivals else 0.0
    late = before.late + (quick if missed > before.late else slowly) * (missed - before.late)
    return Estimate(qps, service, before.usual_us, slow_s, well_s, waiting, late)


def _missed_part(state: ControlState, observation: Mapping[str, Observation]) -> float:
    """Return the part of requests that missed their SLO, excluding isolated models."""
    apart = _isolated_models(state.pools)
    return _missed_by([name for name in observation if name not in apart], observation)


def _isolated_models(pools: tuple[Pool, ...]) -> frozenset[str]:
    return frozenset(model for pool in pools if pool.kind == "isolated" for model in pool.models)


def _judge_trial(
    state: ControlState, observation: Mapping[str, Observation], now_s: float
) -> tuple[ControlState, tuple[Move, ...]]:
    """Undo the last change if donors of cores now miss far more requests than before, and more than the receivers do.

    Overloaded models miss requests under any division of cores: their misses are not caused by the change.
    """
    trial = state.trial
    if trial is None:
        return state, ()
    if now_s - trial.since_s > state.settings.watch_s or state.pools != trial.after:
        return replace(state, trial=None), ()
    had, has = _usable_cores(trial.pools, trial.lent), _usable_cores(state.pools, state.lent)
    short, still_short = (_overloaded_models(pools, state.estimates) for pools in (trial.pools, state.pools))
    gave = [model for model, cores in has.items() if cores < had[model] and model not in short]
    took = [model for model, cores in has.items() if cores > had[model] and model not in still_short]
    hurt, helped = _missed_by(gave, observation), _missed_by(took, observation)
    if hurt <= max(0.02, 3 * trial.missed_before) or hurt <= helped:
        return state, ()
    reason = f"undone: {hurt:.1%} of the requests of those that gave cores missed, {trial.missed_before:.1%} before"
    moves = list_moves(in_use(state.pools, state.lent), in_use(trial.pools, trial.lent), reason)
    until_s = now_s + 2 * state.settings.hold_s
    return replace(state, pools=trial.pools, lent=trial.lent, trial=None, blocked_until_s=until_s), moves


def _overloaded_models(pools: tuple[Pool, ...], estimates: Mapping[str, Estimate]) -> frozenset[str]:
    """Return the models in pools whose demand exceeds their cores, at the usual service time of a request."""
    return frozenset(
        model
        for pool in pools
        if sum(estimates[name].usual_cores for name in pool.models) > len(pool.cores)
        for model in pool.models
    )


def _usable_cores(pools: tuple[Pool, ...], lent: bool) -> dict[str, float]:
    """Return the cores that each model may use; cores that a baseline also uses count half."""
    return {
        model: len(pool.cores) / (2 if lent and pool.kind != "baseline" else 1)
        for pool in in_use(pools, lent)
        for model in pool.models
    }


def _missed_by(models: list[str], observation: Mapping[str, Observation]) -> float:
    seen = [observation[name] for name in models if name in observation]
    total = sum(observed.arrivals for observed in seen)
    return sum(observed.missed for observed in seen) / total if total else 0.0


def _models_to_isolate(state: ControlState) -> frozenset[str]:
    """Return variants that have become so slow that their neighbors would miss the SLO because of them."""
    now = _isolated_models(state.pools)
    return frozenset(
        name
        for name, estimate in state.estimates.items()
        if state.tenants[name].role == "variant"
        and ((name in now and estimate.well_s < 3.0) or (name not in now and estimate.slow_s >= 2.0))
    )


def _limits(state: ControlState, isolated: frozenset[str], pools: tuple[Pool, ...]) -> dict[str, int]:
    """Return limits that shed requests early: of isolated models, and of variants when cores are short."""
    limits = {}
    for pool in pools:
        demand = sum(state.estimates[name].cores for name in pool.models)
        # Models whose pool has no core, because there are too few, share cores of others: its size means nothing.
        short = bool(pool.cores) and demand > 1.3 * len(pool.cores)
        if pool.kind == "isolated" or (pool.kind != "baseline" and short):
            for name in pool.models:
                estimate = state.estimates[name]
                part = estimate.cores / demand if demand else 1.0
                in_time = state.tenants[name].slo_ms * 1e3 / max(estimate.service_us, 1.0)
                # Without a core of its own, a slow variant runs beside others, of whose core it shall take little.
                least = 1 if not pool.cores and estimate.slow_s > 0 else 2
                limits[name] = max(least, math.ceil(len(pool.cores) * part * (1 + in_time)))
    return limits


def _reason(state: ControlState, wanted: tuple[Pool, ...], now_s: float) -> str | None:
    """Return why ownership must change now, or None to leave it unchanged."""
    if not _same_models(state.pools, wanted):
        kinds = {model: pool.kind for pool in state.pools for model in pool.models}
        changed = [
            f"{model} from {kinds.get(model, 'none')} to {pool.kind}"
            for pool in wanted
            for model in pool.models
            if kinds.get(model) != pool.kind
        ]
        return "regrouped by demand: " + ", ".join(changed[:4])
    if now_s < state.blocked_until_s:
        return None
    current = {pool.name: pool for pool in state.pools}
    for pool in wanted:
        before = current[pool.name]
        change = len(pool.cores) - len(before.cores)
        demand, late = load_of(pool.kind, pool.models, state.estimates, state.settings)
        if pool.name in state.overrides and change:
            return f"{pool.name} is fixed at {state.overrides[pool.name]} cores"
        if change >= max(2, math.ceil(state.settings.move_part * len(before.cores))) or (
            change >= 1 and (demand > len(before.cores) or late == 1.0)
        ):
            givers = [pool for pool in wanted if len(pool.cores) < len(current[pool.name].cores)]
            if any(state.held_until_s.get(giver.name, 0.0) > now_s for giver in givers):
                return None
            why = " and as its requests are late" if late > 0.1 else ""
            what = f"{need(demand, late):.1f} cores for a demand of {demand:.1f}{why}"
            return f"{pool.name} needs {what}, has {len(before.cores)}"
    return None


def _same_models(a: tuple[Pool, ...], b: tuple[Pool, ...]) -> bool:
    return {(pool.kind, pool.models) for pool in a} == {(pool.kind, pool.models) for pool in b}


def list_moves(before: tuple[Pool, ...], after: tuple[Pool, ...], reason: str) -> tuple[Move, ...]:
    """Return the changes, growing pools first."""
    old = {pool.name: pool.cores for pool in before}
    new = {pool.name: pool.cores for pool in after}
    moves = [
        Move(name, old.get(name, ()), new.get(name, ()), reason)
        for name in [*new, *(name for name in old if name not in new)]
        if set(old.get(name, ())) != set(new.get(name, ()))
    ]
    return tuple(sorted(moves, key=lambda move: len(move.before) - len(move.after)))

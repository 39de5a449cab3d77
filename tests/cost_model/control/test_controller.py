# SPDX-License-Identifier: Apache-2.0
"""Check properties of single steps of the controller and of sequences of steps."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.control import ControlledTenant, ControlState, Observation, Settings, begin, step

CORES = 32


def tenants(variants: int = 6) -> list[ControlledTenant]:
    made = [ControlledTenant("base", "baseline", 2000.0, 20.0, 6000.0)]
    made += [ControlledTenant(f"v{place}", "variant", 3000.0, 20.0, 500.0) for place in range(variants)]
    return [*made, ControlledTenant("fast", "variant", 40.0, 5.0, 500.0)]


def start(**changes: object) -> ControlState:
    return begin(range(CORES), tenants(), settings=Settings(), **changes)  # type: ignore[arg-type]


def seen(state: ControlState, qps: dict[str, float] | None = None, **slower: float) -> dict[str, Observation]:
    observed = {}
    for name, tenant in state.tenants.items():
        count = round((qps or {}).get(name, tenant.qps))
        busy_us = count * tenant.service_us * slower.get(name, 1.0)
        observed[name] = Observation(arrivals=count, completed=count, busy_us=busy_us)
    return observed


def sizes(state: ControlState) -> dict[str, int]:
    return {pool.name: len(pool.cores) for pool in state.pools}


def check_whole(state: ControlState) -> None:
    owned = [core for pool in state.pools for core in pool.cores]
    assert sorted(owned) == list(range(CORES))
    models = [model for pool in state.pools for model in pool.models]
    assert sorted(models) == sorted(state.tenants)
    assert all(pool.cores for pool in state.pools)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 20_000), min_size=8, max_size=8), min_size=1, max_size=25))
def test_every_core_has_one_owner_and_the_baseline_keeps_its_floor(rates: list[list[float]]) -> None:
    state = start()
    for now, row in enumerate(rates, 1):
        state, moves = step(state, seen(state, dict(zip(state.tenants, row, strict=True))), float(now))
        check_whole(state)
        assert sizes(state)["base"] >= state.floor
        growth = [len(move.after) - len(move.before) for move in moves]
        assert growth == sorted(growth, reverse=True), "growing pools stand first"
        assert all(move.reason for move in moves)


def test_baseline_keeps_its_floor_under_any_demand() -> None:
    known = [ControlledTenant("base", "baseline", 1000.0, 20.0, 14_000.0)]
    known += [ControlledTenant(name, "variant", 1000.0, 20.0, 10.0) for name in ("x", "y")]
    state = begin(range(18), known)
    assert state.floor == 8
    for now in range(1, 120):
        state, _ = step(state, seen(state, {"base": 100.0, "x": 5400.0, "y": 5400.0}), float(now))
    # Both variants are large enough for their own cores, and there are enough cores for all.
    assert sizes(state) == {"base": 8, "x": 5, "y": 5}


def test_step_does_not_change_its_arguments() -> None:
    state = start()
    before = repr(state)
    observed = seen(state, {"base": 9000.0})
    assert step(state, observed, 1.0) == step(state, observed, 1.0)
    assert repr(state) == before


def test_noisy_constant_load_moves_no_cores() -> None:
    state = start()
    chance = random.Random(1)
    late = []
    for now in range(1, 300):
        qps = {name: max(0.0, chance.gauss(tenant.qps, tenant.qps**0.5)) for name, tenant in state.tenants.items()}
        state, moves = step(state, seen(state, qps), float(now))
        late += moves if now > 30 else []
    assert late == []


def test_lasting_demand_moves_cores_within_five_seconds() -> None:
    state = start()
    before = sizes(state)["base"]
    for now in range(1, 6):
        state, _ = step(state, seen(state, {"base": 10_000.0}), float(now))
    assert sizes(state)["base"] > before
    assert sizes(state)["base"] >= 20


def test_baseline_comes_first_when_cores_are_short() -> None:
    state = start()
    rates = dict.fromkeys(state.tenants, 4000.0) | {"base": 8000.0}
    for now in range(1, 40):
        state, _ = step(state, seen(state, rates), float(now))
    assert sizes(state)["base"] >= 16
    assert state.limits
    assert "base" not in state.limits


def test_slow_variant_is_isolated_limited_and_comes_back() -> None:
    state = start()
    for now in range(1, 6):
        state, moves = step(state, seen(state, v3=4.0), float(now))
    pool = state.pool_of("v3")
    assert pool.kind == "isolated"
    assert not pool.borrows
    assert len(pool.cores) <= 4
    assert "v3" in state.limits
    for now in range(6, 30):
        state, moves = step(state, seen(state), float(now))
    assert state.pool_of("v3").kind != "isolated"
    assert "v3" not in state.limits
    del moves


def test_few_requests_show_a_change_that_is_beyond_chance() -> None:
    state = start()
    rare = {"v3": 9.0}
    for now in range(1, 30):
        state, _ = step(state, seen(state, rare), float(now))
    state, _ = step(state, seen(state, rare, v3=12.0), 30.0)
    assert state.estimates["v3"].service_us > 6 * 3000.0
    # Twice the time may be chance if only nine requests took it.
    other, _ = step(start(), seen(start(), rare, v3=2.0), 1.0)
    assert other.estimates["v3"].service_us < 1.2 * 3000.0


def test_slow_variant_without_a_core_runs_one_request_at_a_time_until_it_recovers() -> None:
    base = ControlledTenant("b", "baseline", 3000.0, 20.0, 50.0)
    slow, other = (ControlledTenant(name, "variant", 3000.0, 20.0, 50.0) for name in "so")
    state = begin(range(2), [base, slow, other])
    for now in range(1, 8):
        state, _ = step(state, seen(state, s=12.0), float(now))
    assert state.pool_of("s").kind == "isolated"
    assert not state.pool_of("s").cores
    assert state.limits == {"s": 1}
    for now in range(8, 12):
        state, _ = step(state, seen(state), float(now))
    assert state.limits == {"s": 2}
    for now in range(12, 20):
        state, _ = step(state, seen(state), float(now))
    assert state.limits == {}


def test_slow_baseline_is_not_isolated() -> None:
    state = start()
    for now in range(1, 10):
        state, _ = step(state, seen(state, base=4.0), float(now))
    assert state.pool_of("base").kind == "baseline"


def test_a_move_that_hurts_is_undone_and_not_repeated_at_once() -> None:
    state = start()
    observed = seen(state, {"base": 9500.0})
    moves: tuple[object, ...] = ()
    now = 0.0
    before = state.pools
    while not moves:
        now += 1
        before = state.pools
        state, moves = step(state, observed, now)
    hurt = {
        name: Observation(seen.arrivals, seen.completed, missed=0 if name == "base" else seen.arrivals // 5,
                          busy_us=seen.busy_us)
        for name, seen in observed.items()
    }  # fmt: skip
    state, undo = step(state, hurt, now + 1)
    assert undo
    assert undo[0].reason.startswith("undone")
    assert state.pools == before
    for later in range(2, 6):
        state, again = step(state, observed, now + later)
        assert again == ()


def test_a_regrouping_that_hurts_is_undone_and_not_repeated_at_once() -> None:
    state = start()
    observed = seen(state, {"v1": 2500.0})
    now = 0.0
    while state.pool_of("v1").kind != "own":
        now += 1
        before = state.pools
        state, _ = step(state, observed, now)
    hurt = {name: replace(seen, missed=0 if name == "base" else seen.arrivals // 4) for name, seen in observed.items()}
    state, undo = step(state, hurt, now + 1)
    assert undo
    assert undo[0].reason.startswith("undone")
    assert state.pools == before
    blocked = state.blocked_until_s
    for later in range(2, int(blocked - now)):
        state, _ = step(state, observed, now + later)
        assert state.pool_of("v1").kind == "pool"
    for later in range(3):
        state, _ = step(state, observed, blocked + later)
    assert state.pool_of("v1").kind == "own", "it is tried again"


def test_slow_variant_is_isolated_even_if_no_cores_move() -> None:
    state = replace(start(), blocked_until_s=1000.0)
    for now in range(1, 6):
        state, _ = step(state, seen(state, v3=4.0), float(now))
    assert state.pool_of("v3").kind == "isolated"


def pressed(state: ControlState, model: str, **values: int) -> dict[str, Observation]:
    """Return what is seen at the usual rates while a model has a queue, or is late."""
    observed = seen(state)
    return observed | {model: replace(observed[model], **values)}


def test_late_baseline_gets_cores_and_returns_them() -> None:
    state = start()
    before = sizes(state)["base"]
    reasons = []
    for now in range(1, 20):
        state, moves = step(state, pressed(state, "base", missed=3000), float(now))
        reasons += [move.reason for move in moves]
    late = sizes(state)["base"]
    assert late > before
    assert "its requests are late" in reasons[0]
    for now in range(20, 60):
        state, _ = step(state, pressed(state, "base", missed=6000), float(now))
    assert sizes(state)["base"] <= late + 1, "lateness alone does not take all"
    for now in range(60, 180):
        state, _ = step(state, seen(state), float(now))
    assert sizes(state)["base"] <= before + 1


def test_late_variants_get_no_cores_from_a_baseline_in_time() -> None:
    state = start()
    before = sizes(state)
    for now in range(1, 60):
        state, _ = step(state, pressed(state, "v1", missed=400), float(now))
    assert sizes(state) == before


@pytest.mark.parametrize("model", ["base", "v1"])
def test_lasting_queue_counts_as_demand(model: str) -> None:
    state = start()
    owner = state.pool_of(model).name
    before = sizes(state)[owner]
    for now in range(1, 20):
        state, _ = step(state, pressed(state, model, queued=6000), float(now))
    assert len(state.pool_of(model).cores) > (before if owner == state.pool_of(model).name else 5)
    assert state.estimates[model].pressure > state.estimates[model].cores + 10


def test_operator_overrides_the_controller() -> None:
    state = start(overrides={"base": 9})
    assert sizes(state)["base"] == 9
    for now in range(1, 20):
        state, _ = step(state, seen(state, {"base": 12_000.0}), float(now))
    assert sizes(state)["base"] == 9


def test_estimates_of_unobserved_models_decay() -> None:
    state = start()
    for now in range(1, 60):
        state, _ = step(state, {"base": Observation(6000, 6000, busy_us=12e6)}, float(now))
        check_whole(state)
    assert state.estimates["v1"].qps < 10

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cost_model.control import Observation
from cost_model.machine import Machine
from cost_model.service import ServiceTable
from helpers.proxies.running_allocator import ALL, BASELINE, VARIANTS, Running
from serving_proxy.cores.allocator import LOOK_S, SETTLED_S, Allocator, Mode
from serving_proxy.cores.learning import ENOUGH
from serving_proxy.cores.tenants import DeployedTenant


def test_a_hot_baseline_gets_cores_and_variants_share() -> None:
    running = Running(8)
    running.run(10, v3=500, v4=500, v5=500)
    before = running.sizes()
    running.run(40, v3=5000, v4=50, v5=50)
    sizes = running.sizes()
    assert sizes["ranking/3"] > before["ranking/3"]
    assert sizes["ranking/3"] >= 6
    cores = running.allocator.cores
    assert cores["ranking/4"] == cores["ranking/5"]
    assert not set(cores["ranking/3"]) & set(cores["ranking/4"])
    assert any("needs" in move.reason for move in running.moves)


def test_steady_load_moves_no_cores() -> None:
    running = Running(8)
    running.run(60, v3=3000, v4=500, v5=500)
    count = len(running.moves)
    running.run(300, v3=3000, v4=500, v5=500)
    assert len(running.moves) == count


def test_a_baseline_keeps_its_floor_when_variants_flood() -> None:
    running = Running(8)
    running.run(30, v3=2000, v4=100, v5=100)
    running.run(60, v3=2000, v4=20_000, v5=20_000)
    assert running.sizes()["ranking/3"] >= 3


@pytest.mark.parametrize("mode", ["plan", "control"])
def test_a_single_core_is_not_divided(mode: Mode) -> None:
    running = Running(1, mode)
    running.run(5, v3=500, v4=500, v5=100)
    assert running.allocator.cpusets == {}


@pytest.mark.parametrize("mode", ["plan", "control"])
def test_a_single_baseline_is_not_pinned(mode: Mode) -> None:
    running = Running(4, mode)
    running.tenants = [BASELINE]
    running.run(5, v3=500)
    assert running.allocator.cpusets == {}


def test_no_version_is_pinned_before_rates_are_known() -> None:
    running = Running(8)
    running.run(int(LOOK_S), v3=6000, v4=100, v5=100)
    assert running.allocator.cpusets == {}
    running.run(1, v3=6000, v4=100, v5=100)
    assert running.sizes()["ranking/3"] >= 6


def test_a_single_pool_stays_off_cores_that_operators_assigned() -> None:
    allocator = Allocator("control")
    for now in (0.0, LOOK_S):
        allocator.deploy(VARIANTS, Machine.even(2), {}, now, apart=True)
    assert allocator.cpusets == {"ranking/4": "0-1", "ranking/5": "0-1"}


def test_every_version_has_cores_even_with_more_pools_than_cores() -> None:
    running = Running(2)
    tight = DeployedTenant("ranking/6", "ranking", 6, "variant", 1.0, "/models/6", "ranking/3")
    running.tenants = [*ALL, tight]
    running.run(30, v3=300, v4=100, v5=10, v6=10)
    assert running.allocator.cpusets == {
        "ranking/3": "0",
        **dict.fromkeys(("ranking/4", "ranking/5", "ranking/6"), "1"),
    }


def test_a_plan_is_replaced_once_after_requests_were_observed() -> None:
    running = Running(8, "plan")
    running.run(int(SETTLED_S) + 1, v3=1000, v4=1000, v5=500)
    first = running.sizes()
    running.tenants = ALL[:2]
    running.run(1, v3=1000, v4=1000)
    running.tenants = ALL
    running.run(int(SETTLED_S) - 2, v3=4500, v4=50, v5=50)
    assert running.sizes()["ranking/3"] <= first["ranking/3"] + 1
    running.run(3, v3=4500, v4=50, v5=50)
    assert running.sizes()["ranking/3"] > first["ranking/3"]
    planned = running.sizes()
    running.run(60, v3=10, v4=3000, v5=50)
    assert running.sizes() == planned


def test_a_new_version_joins_the_pool_and_one_that_goes_leaves_it() -> None:
    running = Running(8)
    running.run(20, v3=3000, v4=500, v5=100)
    running.tenants = ALL[:2]
    running.run(2, v3=3000, v4=500)
    assert set(running.allocator.cores) == {"ranking/3", "ranking/4"}
    running.tenants = ALL
    running.run(2, v3=3000, v4=500)
    assert running.allocator.cores["ranking/5"] == running.allocator.cores["ranking/4"]


def test_a_promotion_gives_the_new_baseline_the_cores() -> None:
    running = Running(8)
    running.run(40, v3=4000, v4=400, v5=100)
    had = running.sizes()["ranking/3"]
    new = DeployedTenant("ranking/4", "ranking", 4, "baseline", 20.0, "/models/4")
    old = DeployedTenant("ranking/3", "ranking", 3, "variant", 20.0, "/models/3", "ranking/4")
    running.tenants = [new, old, VARIANTS[1]]
    running.run(1, v3=4000, v4=400, v5=100)
    assert running.sizes()["ranking/4"] >= had - 1
    running.run(30, v3=10, v4=4400, v5=100)
    assert running.sizes()["ranking/4"] >= had - 1
    assert running.allocator.cores["ranking/3"] == running.allocator.cores["ranking/5"]


def test_a_version_slower_than_assumed_is_learned_and_not_isolated() -> None:
    running = Running(8)
    running.run(20, us={"ranking/3": 1000.0, "ranking/4": 20_000.0, "ranking/5": 1000.0}, v3=1000, v4=50, v5=50)
    assert all(pool.kind != "isolated" for pool in running.allocator.pools)
    learnt = running.allocator.costs["ranking/4"]
    assert learnt.completed >= ENOUGH
    assert learnt.usual_us == pytest.approx(20_000.0, rel=0.05)


def test_a_variant_that_becomes_slow_is_isolated() -> None:
    running = Running(8)
    usual = {"ranking/3": 1000.0, "ranking/4": 2000.0, "ranking/5": 1000.0}
    running.run(30, us=usual, v3=1000, v4=200, v5=200)
    running.run(30, us={**usual, "ranking/4": 12_000.0}, v3=1000, v4=200, v5=200)
    apart = [pool for pool in running.allocator.pools if pool.kind == "isolated"]
    assert [pool.models for pool in apart] == [("ranking/4",)]


def test_a_move_that_hurts_the_donors_is_undone() -> None:
    running = Running(8)
    running.run(30, v3=1000, v4=1000, v5=1000)
    calm = running.sizes()
    for _ in range(30):
        running.run(1, v3=5000, v4=700, v5=700)
        if running.sizes() != calm:
            break
    assert running.sizes() != calm
    for _ in range(3):
        running.now += 1.0
        hurt = {f"ranking/{n}": Observation(1000, 1000, 0, 900, busy_us=1e6) for n in (4, 5)}
        fine = {"ranking/3": Observation(6000, 6000, 0, 0, busy_us=4e6)}
        running.moves += running.allocator.observe(hurt | fine, running.now, 1.0)
    assert any(move.reason.startswith("undone") for move in running.moves)


def test_learned_costs_survive_a_restart_and_are_reset_for_new_files() -> None:
    running = Running(8)
    running.run(10, us=3000.0, v3=500, v4=100, v5=100)
    kept = json.loads(json.dumps(running.allocator.to_json()))
    next_one = Allocator("control", kept)
    next_one.deploy(ALL, running.machine, {}, 0.0)
    assert next_one.cpusets
    assert next_one.costs["ranking/3"].learnt
    assert next_one.demand()["ranking/3"] == pytest.approx(running.allocator.demand()["ranking/3"], rel=0.01)
    next_one = Allocator("control", kept)
    next_one.deploy(
        [BASELINE, DeployedTenant("ranking/4", "ranking", 4, "variant", 20.0, "/other")], running.machine, {}, 0.0
    )
    assert next_one.costs.keys() == {"ranking/3"}
    assert Allocator("control", "nonsense").costs == {}


def test_requests_that_share_a_core_count_no_more_than_the_core() -> None:
    running = Running(2)
    running.run(20, v3=100, v4=100, v5=100)
    # Four requests at once on the variants' core: each takes four times as long, and the core is busy once.
    running.run(20, us=8000.0, v3=100, v4=250, v5=250)
    assert running.allocator.demand()["pool"] <= 1.1


def test_overloaded_variants_are_limited_but_never_the_baseline() -> None:
    running = Running(2)
    running.run(20, most=900, v3=300, v4=3000, v5=10)
    limits = running.allocator.limits
    assert set(limits) == {"ranking/4", "ranking/5"}
    # What is answered within 20 ms at a millisecond each, on one core: 20 that wait and the one that runs.
    assert 15 <= limits["ranking/4"].most <= 22
    assert "1 core for a demand of 2.9" in limits["ranking/4"].reason
    running.run(60, v3=300, v4=100, v5=10)
    assert running.allocator.limits == {}


def test_a_slow_variant_for_which_no_core_is_left_runs_one_request_at_a_time() -> None:
    running = Running(2)
    usual = {"v3": 300, "v4": 200, "v5": 200}
    running.run(20, **usual)
    assert not running.allocator.borrowing
    slow = {"ranking/3": 1000.0, "ranking/4": 12_000.0, "ranking/5": 1000.0}
    running.run(10, us=slow, most=300, v3=300, v4=60, v5=200)
    assert {name: limit.most for name, limit in running.allocator.limits.items()} == {"ranking/4": 1}
    assert "slower than usual" in running.allocator.limits["ranking/4"].reason
    assert running.allocator.cpusets == {"ranking/3": "0", "ranking/4": "1", "ranking/5": "1"}
    running.run(60, **usual)
    assert running.allocator.limits == {}


def test_mode_plan_sets_no_limits() -> None:
    running = Running(2, "plan")
    running.run(60, most=900, v3=300, v4=3000, v5=10)
    assert running.allocator.limits == {}


def test_a_limit_ends_with_the_variant_that_is_promoted() -> None:
    running = Running(2)
    running.run(20, most=900, v3=300, v4=3000, v5=10)
    assert "ranking/4" in running.allocator.limits
    new = DeployedTenant("ranking/4", "ranking", 4, "baseline", 20.0, "/models/4")
    running.tenants = [new, replace(BASELINE, role="variant", like="ranking/4"), VARIANTS[1]]
    running.allocator.deploy(running.tenants, running.machine, {}, running.now)
    assert "ranking/4" not in running.allocator.limits


def test_a_plan_is_applied_as_it_is_made() -> None:
    running = Running(2, "plan")
    for rates in ({"v3": 300, "v4": 5}, {"v3": 300, "v4": 3000}, {"v3": 1800, "v4": 5}):
        running.run(int(SETTLED_S) + 10, most=1000, **rates)
        assert running.allocator.plan is not None
        assert running.allocator.cores == {
            name: allocation.cores for allocation in running.allocator.plan.allocations for name in allocation.models
        }
    assert not running.allocator.borrowing


def test_a_baseline_that_misses_its_slo_gets_cores_although_it_is_not_busy() -> None:
    running = Running(8)
    running.run(30, v3=2000, v4=1000, v5=1000)
    before = running.sizes()["ranking/3"]
    for _ in range(20):
        running.now += 1.0
        late = Observation(2000, 2000, 0, 1800, queued=500, in_flight=520, busy_us=2e6)
        fine = {f"ranking/{n}": Observation(1000, 1000, busy_us=1e6) for n in (4, 5)}
        running.moves += running.allocator.observe({"ranking/3": late, **fine}, running.now, 1.0)
    assert running.sizes()["ranking/3"] > before
    assert "late" in running.moves[-1].reason


def test_a_plan_that_hurts_is_undone_as_well() -> None:
    running = Running(8)
    running.run(30, v3=2500, v4=1500, v5=1000)
    before = running.sizes()
    # Due much sooner, it is planned with more cores.
    running.allocator.deploy([replace(BASELINE, slo_ms=5.0), *VARIANTS], running.machine, {}, running.now)
    assert running.sizes()["ranking/3"] > before["ranking/3"]
    running.judge(1, {"v4": 700, "v5": 500}, v3=2500, v4=1500, v5=1000)
    assert running.sizes() == before
    assert running.moves[-1].reason.startswith("undone")


def test_the_source_of_a_request_cost_is_reported() -> None:
    running = Running(4)
    running.run(1)
    sources = {tenant.name: running.allocator.source_of(tenant) for tenant in ALL}
    assert set(sources.values()) == {"default"}
    running.run(1, v3=ENOUGH, v4=10)
    sources = {tenant.name: running.allocator.source_of(tenant) for tenant in ALL}
    assert sources == {"ranking/3": "learnt", "ranking/4": "seen", "ranking/5": "baseline"}


def test_a_profile_is_used_until_requests_were_observed() -> None:
    allocator = Allocator("control")
    table = ServiceTable((1,), (1, 2), (0.0, 1.0), (((4000.0, 4000.0), (4000.0, 4000.0)),))
    allocator.deploy(ALL, Machine.even(4), {"ranking/3": table}, 0.0)
    assert allocator.source_of(BASELINE) == "profile"
    assert allocator.source_of(VARIANTS[0]) == "baseline"
    assert allocator.state is not None
    assert allocator.state.estimates["ranking/4"].service_us == pytest.approx(4000.0)


def test_another_profile_leads_to_another_plan() -> None:
    def table(us: float) -> ServiceTable:
        return ServiceTable((1,), (1, 2), (0.0, 1.0), (((us, us), (us, us)),))

    allocator = Allocator("control", {"rates": {"ranking/3": 100, "ranking/4": 100}})
    profiles = {"ranking/3": table(4000.0), "ranking/4": table(4000.0)}
    allocator.deploy(ALL[:2], Machine.even(8), profiles, 0.0)
    first = allocator.plan
    allocator.deploy(ALL[:2], Machine.even(8), dict(profiles), 1.0)
    assert allocator.plan is first
    allocator.deploy(ALL[:2], Machine.even(8), {**profiles, "ranking/4": table(30_000.0)}, 2.0)
    assert allocator.plan is not first
    assert allocator.demand()["pool"] == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("cores", [2, 3, 4, 5])
@pytest.mark.parametrize("mode", ["plan", "control"])
def test_more_baselines_than_cores_are_followed_like_others(mode: Mode, cores: int) -> None:
    several = [DeployedTenant(f"{name}/1", name, 1, "baseline", 20.0, f"/{name}/1") for name in "abc"]
    several += [DeployedTenant(f"{name}/2", name, 2, "variant", 20.0, f"/{name}/2", f"{name}/1") for name in "abc"]
    allocator = Allocator(mode)
    for now in range(60):
        allocator.deploy(several, Machine.even(cores), {}, float(now))
        seen = {tenant.name: Observation(100, 100, busy_us=100 * 1500.0) for tenant in several}
        allocator.observe(seen, float(now), 1.0)
    assert allocator.cores.keys() == {tenant.name for tenant in several}
    assert sum(allocator.demand().values()) == pytest.approx(0.9, rel=0.05)

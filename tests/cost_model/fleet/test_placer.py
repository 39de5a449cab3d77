# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from cost_model.errors import UsageError
from cost_model.fleet import Placement, Problem, make_problem, place
from cost_model.fleet.explain import explain, reasons_of
from cost_model.interference import NONE
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member

USERS = {"files": {"users": "20GB"}}
ITEMS = {"files": {"items": "300GB"}, "tier": "tiered", "memory": "5GB"}


def problem_of(workload: Any, fleet: Any, survive: str | None = None) -> Problem:
    return make_problem(workload, fleet, workload.qps_by_model(), NONE, survive)


def check(made: Placement) -> None:
    """Check a placement against the definition, with nothing from the packing but who is where."""
    problem, machines = made.problem, made.problem.fleet.machines
    for place_, machine in enumerate(machines):
        there = [problem.units[number] for number in made.packing.residents[place_]]
        cores = sum(made.packing.hosts[number][place_].cores[place_] for number in made.packing.residents[place_])
        tables = {name: table for unit in there for name, table in unit.tables.items()}
        memory_gb = sum(unit.memory_gb for unit in there) + sum(table.memory_gb for table in tables.values())
        assert cores <= machine.cores
        assert memory_gb <= machine.usable_gb + 1e-6
        assert cores == pytest.approx(made.packing.cores[place_] - made.packing.free["cores"][place_])
        assert memory_gb == pytest.approx(made.packing.memory[place_] - made.packing.free["memory"][place_])
    for number, unit in enumerate(problem.units):
        hosts = made.packing.hosts[number]
        if number in made.unplaced:
            assert not hosts
            continue
        for lost in {machine.zone if problem.survival.kind == "zone" else machine.name for machine in machines}:
            left = [place_ for place_ in hosts if lost not in (machines[place_].name, machines[place_].zone)]
            for place_ in left:
                # Every replica that is left meets all SLOs at its part of the requests.
                speed = machines[place_].speed_for(unit.speedups)
                members = [Member(member.model, member.qps / len(left)) for member in unit.members]
                assert Sizing(members, problem.costs, 1 / speed, 256).meets(int(hosts[place_].cores[place_]))


def test_models_fit_and_survive_the_loss_of_a_zone(make: Any) -> None:
    models = [make.model(f"m{i}", 1500 + 700 * i, memory_gb=3, tables=USERS if i % 2 else ITEMS) for i in range(6)]
    models += [make.model(f"v{i}", 300, role="variant", of="m1", memory_gb=1, tables=USERS) for i in range(5)]
    workload = make.workload(*models)
    group = {"group": "a", "count": 9, "cores": 16, "memory_gb": 64, "zones": ["x", "y", "z"]}
    slow = {"group": "b", "count": 6, "cores": 12, "memory_gb": 64, "zones": ["x", "y", "z"], "speed": 0.7}
    made = place(problem_of(workload, make.fleet(group, slow)))
    assert made.feasible
    check(made)
    # Variants with the same table form one pool, and they share its memory.
    assert len({made.machines_of(f"v{i}") for i in range(5)}) == 1


def exhaustive(problem: Problem) -> float:
    """Return the least cost of all placements."""
    count = len(problem.fleet.machines)
    best = [float("inf")]

    def extend(packing: Any, number: int) -> None:
        if packing.total_cost() >= best[0]:
            return
        if number == len(problem.units):
            best[0] = packing.total_cost()
            return
        for replicas in problem.units[number].counts:
            option = packing.option(number, replicas)
            for machines in itertools.combinations(range(count), replicas):
                done = []
                for machine in machines:
                    if not packing.fits(number, option)[machine]:
                        break
                    packing.add(number, machine, option)
                    done.append(machine)
                if len(done) == replicas:
                    extend(packing, number + 1)
                for machine in done:
                    packing.remove(number, machine)

    extend(problem.packing(), 0)
    return best[0]


def test_small_cases_are_near_the_optimum_and_the_bound_is_below_it(make: Any) -> None:
    random = np.random.default_rng(5)
    ratios, bounds = [], []
    for _ in range(10):
        models = [
            make.model(
                f"m{i}",
                float(random.uniform(500, 6000)),
                memory_gb=float(random.uniform(1, 12)),
                tables={"files": {"t": "6GB"}},
            )
            | {"replicas": {"least": 1, "most": 3}}
            for i in range(3)
        ]
        workload = make.workload(*models)
        machines = [
            {"name": f"h{i}", "cores": int(random.choice([6, 8, 12])), "memory_gb": 32, "speed": float(speed)}
            for i, speed in enumerate(random.choice([0.8, 1.0, 1.3], 5))
        ]
        problem = problem_of(workload, make.fleet(*machines))
        made, best = place(problem, seconds=0.5), exhaustive(problem)
        if made.unplaced:
            assert best == float("inf")
            continue
        check(made)
        assert problem.prices.bound <= best + 1e-9
        ratios.append(made.cost / best)
        bounds.append(problem.prices.bound / best)
    assert len(ratios) >= 8
    assert max(ratios) <= 1.35
    assert np.mean(ratios) <= 1.05
    assert np.mean(bounds) >= 0.7


def test_few_models_move_when_the_rates_change(make: Any) -> None:
    machines = make.fleet({"group": "h", "count": 12, "cores": 16, "memory_gb": 64})

    def workload(factor: float) -> Any:
        models = [make.model(f"m{i}", 1000 + 900 * i) for i in range(8)]
        models[3]["qps"] *= factor
        return make.workload(*models)

    before = place(problem_of(workload(1.0), machines))
    names = {name: before.machines_of(name) for name in (f"m{i}" for i in range(8))}
    assert not place(problem_of(workload(1.0), machines), names).moves()
    after = place(problem_of(workload(1.3), machines), names)
    assert after.feasible
    assert sum(len(load_on) for _, load_on, _ in after.moves()) <= 3


def test_a_machine_that_is_gone_is_replaced(make: Any) -> None:
    workload = make.workload(*(make.model(f"m{i}", 2000) for i in range(4)))
    before = place(problem_of(workload, make.fleet({"group": "h", "count": 6, "cores": 8, "memory_gb": 64})))
    names = {f"m{i}": before.machines_of(f"m{i}") for i in range(4)}
    lost = min(names["m0"])
    rest = [{"name": f"h-{i}", "cores": 8, "memory_gb": 64} for i in range(6) if f"h-{i}" != lost]
    after = place(problem_of(workload, make.fleet(*rest)), names)
    assert after.feasible
    for name, load_on, unload_from in after.moves():
        assert set(unload_from) <= {lost}, name
        assert len(load_on) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qps": 20_000}, "each of 3 replicas needs 11 cores after the loss of a machine.* has 8, 3 too few"),
        ({"memory_gb": 40}, r"a replica needs 40 GB of memory, and h-\d has 28.8 free, 11.2 too few"),
        ({"disk_gb": 120}, r"a replica needs 120 GB of disk, and h-\d has 100 free, 20 too few"),
        ({"replicas": 1}, "at least 2 replicas are needed, and at most 1 are possible"),
        ({"replicas": {"least": 4}}, "at least 4 replicas are needed, and at most 3 are possible"),
    ],
)
def test_a_model_that_fits_nowhere_says_what_is_missing(make: Any, change: dict[str, Any], message: str) -> None:
    workload = make.workload(make.model("m", 2000) | change)
    machines = make.fleet({"group": "h", "count": 3, "cores": 8, "memory_gb": 32, "disk_gb": 100})
    made = place(problem_of(workload, machines))
    assert not made.feasible
    _, missing = reasons_of(made)
    assert len(missing) == 1
    assert re.search(message, missing[0][1]), missing[0][1]


def test_missing_spare_capacity_is_said(make: Any) -> None:
    workload = make.workload(make.model("a", 6000), make.model("b", 6000))
    machines = make.fleet({"group": "h", "count": 3, "cores": 6, "memory_gb": 32})
    made = place(problem_of(workload, machines))
    assert not made.feasible
    reasons, missing = reasons_of(made)
    assert len(missing) == 1
    said = "without spare capacity for the loss of a machine all models fit; with it, 12 more cores are needed"
    assert any(said in reason for reason in reasons), reasons
    assert place(problem_of(workload, machines, "none")).feasible


def test_explanations_name_what_would_change(make: Any) -> None:
    workload = make.workload(make.model("a", 6000), make.model("b", 1000))
    made = place(problem_of(workload, make.fleet({"group": "h", "count": 5, "cores": 8, "memory_gb": 32})))
    text = " ".join(explain(made, "a").why)
    assert "after the loss of any machine" in text
    assert "can grow by" in text


def test_zones_need_several(make: Any) -> None:
    with pytest.raises(UsageError, match="a fleet with 0 zones found"):
        problem_of(make.workload(make.model("a", 1)), make.fleet({"name": "h", "cores": 1, "memory_gb": 1}), "zone")

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cost_model.fleet import Placement, make_problem, place
from cost_model.fleet.course import Failures, simulate_fleet
from cost_model.interference import NONE
from cost_model.machine import Machine
from cost_model.simulation.inputs import Piece, build_inputs, schedule
from cost_model.simulation.policies import Fixed, fixed_assignment
from cost_model.simulation.run import simulate
from cost_model.workload import Workload

NEVER = Failures(mtbf_days=1e9)


def placed(make: Any, *models: dict[str, Any], machines: int = 4, cores: int = 8, **more: Any) -> Placement:
    workload = make.workload(*models, **more)
    fleet = make.fleet({"group": "h", "count": machines, "cores": cores, "memory_gb": 64})
    return place(make_problem(workload, fleet, workload.qps_by_model(), NONE))


def pieces_of(made: Placement, seconds: int, level: float = 1.0) -> list[Piece]:
    shares = build_inputs(made.problem.workload).shares
    return [Piece(float(end), level, shares, np.ones(len(shares))) for end in range(1, seconds + 1)]


def run(made: Placement, pieces: list[Piece], failures: Failures = NEVER) -> Any:
    return simulate_fleet(made, "t", pieces, build_inputs(made.problem.workload).shares, failures, 1)


def engine_late(made: Placement, machine: int, part: dict[str, float], seconds: int) -> dict[str, float]:
    """Simulate each request of a machine, with these parts of the requests of models; return the late parts."""
    problem = made.problem
    names = [name for number in sorted(made.packing.residents[machine]) for name in problem.units[number].names]
    kept = tuple(replace(problem.workload.model(name)) for name in names)
    rates = {model.name: (model.qps or 0.0) * part[model.name] for model in kept}
    workload = Workload(None, tuple(replace(model, qps=rates[model.name]) for model in kept))
    owners, groups = [], {}
    for group, number in enumerate(sorted(made.packing.residents[machine])):
        owners += [group] * int(made.packing.hosts[number][machine].cores[machine])
        groups |= dict.fromkeys(problem.units[number].names, group)
    assignment = fixed_assignment([str(g) for g in sorted(set(owners))], owners, [groups[name] for name in names])
    inputs = build_inputs(workload)
    # Late requests are served: dropping them would make others faster, which the queueing model leaves out.
    inputs.load.deadline_us[:] = np.inf
    pieces = [Piece(float(end), 1.0, inputs.shares, np.ones(len(names))) for end in range(1, seconds + 1)]
    policy = Fixed("placed", lambda *_: assignment)
    result = simulate(inputs, Machine.even(len(owners)), pieces, policy, sum(rates.values()), 1, NONE)
    return {model.name: model.missed for model in result.models}


@pytest.mark.parametrize("level", [1.0, 1.35])
def test_late_parts_agree_with_a_simulation_of_every_request(make: Any, level: float) -> None:
    models = [
        make.model("a", 9000, replicas=3),
        make.model("b", 4000, replicas=3, slo_p99_ms=6),
        make.model("v", 500, role="variant", of="a", replicas=3),
        make.model("w", 700, role="variant", of="a", replicas=3),
    ]
    made = placed(make, *models, machines=3, cores=14)
    assert made.feasible
    # After the loss of a machine each replica has half of the requests instead of a third.
    lost = Failures(mtbf_days=1e9, rollout_machines=1, rollout_s=1e6)
    for failures, share in ((NEVER, 1 / 3), (lost, 1 / 2)):
        result = run(made, pieces_of(made, 3, level), failures)
        late = engine_late(made, 2, dict.fromkeys("abvw", share * level), 120)
        for unit, found in zip(made.problem.units, result.models, strict=True):
            rates = np.array([member.qps for member in unit.members])
            simulated = float(np.array([late[name] for name in unit.names]) @ rates / rates.sum())
            # Within a quarter of the limit of 1 %, or a fifth of the value; an overloaded replica is late in both.
            if simulated > 0.5:
                assert found.late > 0.9, unit.name
            else:
                assert found.late == pytest.approx(simulated, abs=0.0025, rel=0.2), unit.name


def test_a_failure_costs_only_the_time_until_it_is_noticed(make: Any) -> None:
    made = placed(make, *(make.model(f"m{i}", 3000) for i in range(4)))
    result = run(made, pieces_of(made, 600), Failures(mtbf_days=0.01, repair_s=300, detect_s=10))
    assert result.failures > 0
    assert not result.losses
    assert 0 < max(model.late for model in result.models) < 0.2
    quiet = run(made, pieces_of(made, 60))
    assert all(model.late < 0.005 for model in quiet.models)
    assert quiet.failures == 0


def test_traffic_beyond_the_plan_makes_losses_visible(make: Any) -> None:
    made = placed(make, *(make.model(f"m{i}", 3000) for i in range(4)))
    result = run(made, pieces_of(made, 10, 1.4))
    assert result.losses
    assert result.worst_loss.busiest > 1


def test_a_rollout_by_machine_is_survived_and_one_by_half_is_not(make: Any) -> None:
    made = placed(make, *(make.model(f"m{i}", 3000) for i in range(4)))
    used = int(made.packing.used.sum())
    one = run(made, pieces_of(made, 30 * used), Failures(mtbf_days=1e9, rollout_machines=1))
    half = run(made, pieces_of(made, 60), Failures(mtbf_days=1e9, rollout_machines=used - 1))
    assert all(model.met for model in one.models)
    assert not all(model.met for model in half.models)


def test_events_and_traffic_of_the_workload_make_hot_spots(make: Any) -> None:
    event = {"at_s": 5, "model": "m0", "service_factor": 4}
    kind = {"name": "slow", "kind": "poisson", "minutes": 0.5, "events": [event]}
    made = placed(make, *(make.model(f"m{i}", 3000) for i in range(3)), traffic=[kind])
    workload = made.problem.workload
    result = run(made, schedule(workload, workload.traffic[0], 1))
    hot = result.hot_spots[0]
    assert hot.overloaded_s == pytest.approx(25)
    assert "m0 slow" in hot.cause

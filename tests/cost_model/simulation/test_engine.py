# SPDX-License-Identifier: Apache-2.0
"""Compare the event loop with queues whose results are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cost_model.errors import CostModelError
from cost_model.simulation import engine

TABLE = engine.TABLE
EXPONENTIAL = -np.log1p(-(np.arange(TABLE) + 0.5) / TABLE)
CONSTANT = np.ones(TABLE)


def make_load(work: np.ndarray, mean_us: float, models: int = 1, threads: int = 1, parallel: float = 0.0) -> Any:
    ones = np.ones(models)
    return engine.make_load(
        fixed_us=0 * ones, per_row_us=mean_us * ones, rows_of=0 * ones, noise_of=0 * ones, rows=work[None],
        noise=CONSTANT[None], threads=threads * ones, parallel=parallel * ones, bytes_per_row=ones,
        slo_us=1e9 * ones, deadline_us=1e9 * ones, excused_from_us=np.inf * ones, excused_until_us=np.inf * ones,
    )  # fmt: skip


def make_segment(end_s: float, qps: float, models: int = 1, **costs: float) -> Any:
    values = {"switch_cost": 0.0, "oversubscription": 0.0, "bandwidth": 0.0, "knee": 0.6, "node_bytes_per_us": 1e5}
    values["idle_start_us"] = 0.0
    return engine.make_segment(
        end_us=end_s * 1e6, rate_per_us=qps * 1e-6, alias_share=np.ones(models), alias_other=np.arange(models),
        factor=np.ones(models), **(values | costs),
    )  # fmt: skip


def run(load: Any, cores: int, qps: float, seconds: float, seed: int = 1, **costs: float) -> Any:
    models = load.models
    state = engine.make_state(np.zeros(cores, int), models, 2, seed)
    segment = make_segment(seconds, qps, models, **costs)
    engine.regroup(state, load, segment, np.zeros(cores), np.zeros(models))
    engine.advance(state, load, segment)
    return state


def erlang_c(cores: int, offered: float) -> float:
    blocked = 1.0
    for count in range(1, cores + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / cores * (1 - blocked))


@pytest.mark.parametrize("cores", [1, 2, 8, 32])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_mean_wait_of_m_m_k(cores: int, load: float) -> None:
    mean_us = 1000.0
    state = run(make_load(EXPONENTIAL, mean_us), cores, load * cores * 1e6 / mean_us, 1600 / cores + 40)
    wait = erlang_c(cores, load * cores) * mean_us / (cores * (1 - load))
    measured = state.latency_us[0] / state.completed[0] - mean_us
    assert measured == pytest.approx(wait, rel=0.06, abs=3)


@pytest.mark.parametrize(("work", "cv2"), [(EXPONENTIAL, 1.0), (CONSTANT, 0.0)])
def test_mean_wait_of_one_core_is_pollaczek_khinchine(work: np.ndarray, cv2: float) -> None:
    load = 0.7
    state = run(make_load(work, 1000.0), 1, 700, 2000)
    wait = load / (1 - load) * (1 + cv2) / 2 * 1000
    assert state.latency_us[0] / state.completed[0] - 1000 == pytest.approx(wait, rel=0.05)


def test_p99_of_m_m_1_is_that_of_an_exponential() -> None:
    state = run(make_load(EXPONENTIAL, 1000.0), 1, 500, 3000)
    total = np.cumsum(state.histogram[0])
    p99 = engine.bucket_edges_us()[np.searchsorted(total, 0.99 * total[-1])]
    assert p99 == pytest.approx(math.log(100) * 2000, rel=0.04)


def test_requests_are_conserved_and_littles_law_holds() -> None:
    load = make_load(EXPONENTIAL, 1000.0, models=3)
    state = run(load, 4, 3600, 300)
    assert (state.arrived == state.completed + state.dropped + state.in_system).all()
    assert state.in_system.sum() == state.running + state.queued_total
    assert state.arrived.sum() == pytest.approx(3600 * 300, rel=0.01)
    assert state.busy_us.sum() == pytest.approx(3600 * 300 * 1000, rel=0.01)
    assert (state.judged == state.completed + state.dropped).all()


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    load = make_load(EXPONENTIAL, 1000.0)
    first, second, other = (run(load, 2, 1500, 20, seed) for seed in (5, 5, 6))
    assert (first.histogram == second.histogram).all()
    assert first.events == second.events
    assert (first.histogram != other.histogram).any()


def test_requests_do_not_depend_on_the_number_of_cores() -> None:
    load = make_load(EXPONENTIAL, 1000.0, models=4)
    few, many = run(load, 2, 1000, 20), run(load, 64, 1000, 20)
    assert few.arrived.tolist() == many.arrived.tolist()


def test_late_requests_are_dropped_before_they_run() -> None:
    load = make_load(CONSTANT, 1000.0)
    load.deadline_us[:] = load.slo_us[:] = 5000.0
    state = run(load, 1, 2000, 50)
    assert state.completed[0] == pytest.approx(50_000, rel=0.01)
    assert state.dropped[0] == pytest.approx(50_000, rel=0.05)
    assert state.busy_us[0] / 50e6 == pytest.approx(1.0, rel=0.01)


def test_a_limit_sheds_on_arrival() -> None:
    load = make_load(CONSTANT, 1000.0)
    state = engine.make_state(np.zeros(1, int), 1, 1, 1)
    state.limit[0] = 1
    segment = make_segment(200, 1000)
    engine.regroup(state, load, segment, np.zeros(1), np.zeros(1))
    engine.advance(state, load, segment)
    # M/D/1/1: Erlang's loss formula with offered load 1.
    assert state.dropped[0] / state.arrived[0] == pytest.approx(0.5, abs=0.01)


def test_threads_divide_the_parallel_part() -> None:
    state = run(make_load(CONSTANT, 1000.0, threads=4, parallel=0.8), 64, 100, 20)
    assert state.latency_us[0] / state.completed[0] == pytest.approx(400, rel=0.01)
    assert state.busy_us[0] == pytest.approx(4 * 400 * state.arrived[0], rel=0.01)
    assert state.free_slots == state.slots - state.in_system[0]


def test_another_model_on_the_core_costs_the_switch() -> None:
    load = make_load(CONSTANT, 1000.0, models=2)
    state = run(load, 1, 300, 500, switch_cost=0.5)
    assert state.busy_us.sum() / state.alone_us.sum() == pytest.approx(1.25, abs=0.01)
    assert run(make_load(CONSTANT, 1000.0), 1, 300, 20, switch_cost=0.5).busy_us[0] == pytest.approx(
        run(make_load(CONSTANT, 1000.0), 1, 300, 20).busy_us[0]
    )


def test_memory_traffic_above_the_knee_costs() -> None:
    load = make_load(CONSTANT, 1000.0)
    load.bytes_per_row[:] = 1e6
    free = run(load, 8, 7000, 20, bandwidth=1.0, node_bytes_per_us=1e9)
    tight = run(load, 8, 4000, 20, bandwidth=1.0, node_bytes_per_us=8e3)
    assert free.busy_us[0] == pytest.approx(free.alone_us[0])
    assert tight.busy_us[0] > 1.02 * tight.alone_us[0]
    assert tight.node_rate[0] >= 0


def two_groups(*, lending: bool) -> Any:
    """Group 0 has three of four cores and little to do; group 1 one core and work for two."""
    load = make_load(EXPONENTIAL, 1000.0, models=2)
    state = engine.make_state(np.zeros(4, int), 2, 2, 3)
    state.lends[:] = state.borrows[:] = lending
    segment = make_segment(100, 2400, 2)
    segment.alias_share[:], segment.alias_other[:] = [1 / 3, 1.0], [1, 1]
    engine.regroup(state, load, segment, np.array([0, 0, 0, 1]), np.array([0, 1]))
    engine.advance(state, load, segment)
    return state


def test_idle_cores_are_lent() -> None:
    alone, lent = two_groups(lending=False), two_groups(lending=True)
    assert alone.queue_size[1] > 1000
    assert lent.queue_size[1] < 100
    assert lent.borrowed_us[1] > 0.2 * lent.busy_us[1]
    # The lending group hardly waits, because its cores serve its own requests first.
    assert lent.latency_us[0] / lent.completed[0] < 1.35 * alone.latency_us[0] / alone.completed[0]


def test_waiting_requests_move_with_their_model_to_its_new_group() -> None:
    load = make_load(EXPONENTIAL, 1000.0, models=2)
    state = engine.make_state(np.zeros(4, int), 2, 2, 3)
    segment = make_segment(1, 6000, 2)
    engine.regroup(state, load, segment, np.array([0, 0, 0, 1]), np.array([0, 1]))
    engine.advance(state, load, segment)
    waiting = state.queued.copy()
    assert waiting[1] > 0
    engine.regroup(state, load, segment, np.array([0, 1, 1, 1]), np.array([0, 1]))
    assert state.queued.sum() == state.queue_size.sum() == state.queued_total
    assert (state.arrived == state.completed + state.dropped + state.in_system).all()
    engine.regroup(state, load, segment, np.array([0, 0, 0, 0]), np.array([0, 0]))
    assert state.queue_size.tolist() == [state.queued_total, 0]


def test_struct_that_differs_from_the_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    structs = engine._structs()
    (first, *others) = structs["State"]
    renamed = structs | {"State": [("machines", *first[1:]), *others]}
    monkeypatch.setattr(engine, "_structs", lambda: renamed)
    with pytest.raises(CostModelError, match="State: the library and Python differ in cores, machines"):
        engine.make_state(np.zeros(2, int), 1, 1, 0)

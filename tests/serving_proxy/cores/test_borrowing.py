# SPDX-License-Identifier: Apache-2.0
"""When baselines borrow the cores of variants, and when that ends."""

from __future__ import annotations

from helpers.proxies.running_allocator import ALL, Running


def test_on_two_cores_each_has_one_and_a_baseline_in_need_uses_both() -> None:
    running = Running(2)
    running.run(30, v3=300, v4=200, v5=10)
    assert running.allocator.cpusets == {"ranking/3": "0", "ranking/4": "1", "ranking/5": "1"}
    running.run(30, v3=1500, v4=200, v5=10)
    assert running.allocator.cpusets == {"ranking/3": "0-1", "ranking/4": "1", "ranking/5": "1"}
    running.run(60, v3=300, v4=200, v5=10)
    assert running.allocator.cpusets["ranking/3"] == "0"


def test_on_two_cores_a_baseline_may_use_what_is_idle() -> None:
    running = Running(2)
    running.run(30, v3=300, v4=10, v5=10)
    assert running.allocator.cpusets == {"ranking/3": "0-1", "ranking/4": "1", "ranking/5": "1"}
    running.run(4, v3=300, v4=500, v5=10)
    assert running.allocator.cpusets["ranking/3"] == "0"
    assert running.moves[-1].reason


def test_a_slow_variant_ends_the_borrowing_of_an_idle_core() -> None:
    running = Running(2)
    running.run(30, v3=250, v4=5, v5=5)
    assert running.allocator.borrowing
    # On the core of the slow variant, the baseline's requests take eight times as long, as if it needed more cores.
    lent = 0
    for _ in range(20):
        beside = running.allocator.borrowing
        lent += beside
        slow = {"ranking/3": 8000.0 if beside else 1000.0, "ranking/4": 30_000.0, "ranking/5": 8000.0}
        running.run(1, us=slow, v3=250, v4=40, v5=20)
    assert lent <= 2


def test_a_baseline_whose_requests_became_heavier_while_it_borrowed_borrows_on() -> None:
    running = Running(2)
    running.run(30, v3=250, v4=5, v5=5)
    heavier = {"ranking/3": 3600.0, "ranking/4": 1000.0, "ranking/5": 1000.0}
    running.run(10, us=heavier, v3=250, v4=250, v5=5)
    moves = len(running.moves)
    running.run(20, us=heavier, v3=250, v4=250, v5=5)
    assert running.allocator.borrowing
    assert len(running.moves) == moves


def lending(rates: dict[str, int]) -> Running:
    """Return an allocator whose baseline needs so much that it borrows the variants' core."""
    running = Running(2)
    running.run(30, v3=300, v4=300, v5=10)
    while not running.allocator.borrowing:
        running.run(1, **rates)
    return running


def test_lending_that_hurts_the_variants_more_than_it_helps_is_ended() -> None:
    rates = {"v3": 900, "v4": 300, "v5": 10}
    running = lending(rates)
    running.judge(1, {"v4": 150}, **rates)
    assert not running.allocator.borrowing
    assert running.moves[-1].reason.startswith("undone")
    assert running.allocator.cpusets["ranking/3"] == "0"
    running.judge(15, {}, **rates)
    assert not running.allocator.borrowing, "not again at once"
    running.judge(15, {}, **rates)
    assert running.allocator.borrowing


def test_an_overloaded_variant_does_not_end_lending() -> None:
    rates = {"v3": 900, "v4": 3000, "v5": 10}
    running = lending(rates)
    running.judge(5, {"v4": 2000}, **rates)
    assert running.allocator.borrowing
    assert not [move for move in running.moves if move.reason.startswith("undone")]


def test_lending_resumes_if_its_end_hurts_the_baseline() -> None:
    running = Running(2)
    running.run(30, v3=1500, v4=200, v5=10)
    assert running.allocator.borrowing
    rates = {"v3": 300, "v4": 200, "v5": 10}
    while running.allocator.borrowing:
        running.run(1, **rates)
    running.judge(1, {"v3": 100}, **rates)
    assert running.allocator.borrowing


def test_a_deployment_keeps_probation_and_pause_of_the_controller() -> None:
    rates = {"v3": 900, "v4": 300, "v5": 10}
    running = lending(rates)
    running.judge(1, {"v4": 150}, **rates)
    running.tenants = ALL[:2]
    running.run(5, v3=900, v4=300)
    assert set(running.allocator.cores) == {"ranking/3", "ranking/4"}
    assert not running.allocator.borrowing


def test_a_variant_is_not_called_slow_while_its_core_is_lent() -> None:
    running = Running(2)
    running.run(30, v3=300, v4=200, v5=10)
    slow = {"ranking/3": 1000.0, "ranking/4": 2400.0, "ranking/5": 2400.0}
    running.run(3, v3=1800, v4=200, v5=10)
    assert running.allocator.borrowing
    running.run(20, us=slow, v3=1800, v4=200, v5=10)
    assert {pool.kind for pool in running.allocator.pools} == {"baseline", "pool"}

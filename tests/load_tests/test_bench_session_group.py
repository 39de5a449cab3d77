# SPDX-License-Identifier: Apache-2.0
"""Check what the benchmark of sessions compares with its targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from load_tests.bench_session_group import apart_contestants, judge, pinned_contestants


def _case(rows: int, pinned: list[float], **engines: list[float]) -> dict[str, Any]:
    rates = {"inline": [100.0] * len(pinned), "pinned": pinned} | engines
    rounds = {name: {"rounds": [{"requests_per_s": rate} for rate in values]} for name, values in rates.items()}
    return {"workload": "W1", "rows": rows, "neighbor": False, "engines": rounds}


def test_lower_quartile_of_bound_sessions_must_reach_the_target() -> None:
    passing, failing = judge([_case(1, [80.0, 86.0, 99.0, 99.0]), _case(128, [96.0, 96.0, 99.0, 99.0])])
    assert (passing.value, passing.limit, passing.ok) == (0.86, 0.85, True)
    assert (failing.value, failing.limit, failing.ok) == (0.96, 0.97, False)


def test_groups_and_runs_beside_a_neighbor_have_no_target() -> None:
    group = {"workload": "W1", "rows": 1, "engines": {"one": {}, "group": {}}}
    assert judge([group, _case(1, [10.0]) | {"neighbor": True}]) == []


def test_only_the_cpus_of_the_sessions_differ() -> None:
    inline, again, pinned = (entry["config"] for entry in pinned_contestants(Path("model"), [0, 3]))
    assert inline == again
    assert pinned == inline | {"cpusets": "0;3"}


def test_clients_are_apart_from_the_session_that_runs_their_requests() -> None:
    inline, apart = apart_contestants(Path("model"), [0, 3])
    assert inline["client_cpu"] == apart["client_cpu"] == 0
    assert apart["config"] == inline["config"] | {"cpusets": "3"}

# SPDX-License-Identifier: Apache-2.0
"""The key `cpusets` and processor_model_set_cpuset(): which texts are taken, and where the threads are then."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import encode
from helpers.hosts.deeprec_abi import DropInModel, drop_in_config, refusal
from helpers.system.programs import run_python
from helpers.system.waiting import wait_until

ONE = encode({"x": np.array([[1, 2, 3]], np.float32)})
CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = CPUS[0], CPUS[-1]
NO_CPU = max(CPUS) + 1


@pytest.mark.parametrize(
    ("cpusets", "sessions", "expected"),
    [
        (f"{FIRST}", 1, [f"{FIRST}"]),
        (f"{FIRST};{LAST}", 2, [f"{FIRST}", f"{LAST}"]),
        (f"{FIRST}-{FIRST};{FIRST},{LAST}", 2, [f"{FIRST}", None]),
        (f" {FIRST} ; {FIRST} , {LAST} ", 2, [f"{FIRST}", None]),
        (f"{LAST},{FIRST},{FIRST}", 1, [None]),
    ],
)
def test_cpusets_are_parsed(cpusets: str, sessions: int, expected: list[str | None], tiny_model: Path) -> None:
    both = f"{FIRST}" if FIRST == LAST else f"{FIRST}-{LAST}" if LAST == FIRST + 1 else f"{FIRST},{LAST}"
    with DropInModel(tiny_model, cpusets=cpusets, session_num=sessions) as model:
        info = model.ask("info")
        assert info["cpusets"] == [both if cpus is None else cpus for cpus in expected]
        assert info["execution"] == "pinned"
        assert model.process(ONE).status == 200


@pytest.mark.parametrize(
    ("cpusets", "sessions", "word"),
    [
        (f"{FIRST}", 2, "1 groups found, expected 2"),
        (f"{FIRST};{FIRST};{FIRST}", 2, "3 groups found, expected 2"),
        (f"{NO_CPU}", 1, f"CPU {NO_CPU} found, expected those that the process may use"),
        (f"{FIRST}-{NO_CPU}", 1, "expected those that the process may use"),
        ("0-8191", 1, "expected those that the process may use"),
        (f"{FIRST};", 2, "'' found"),
        (";", 2, "'' found"),
        (f"{FIRST},", 1, "'' found"),
        ("a", 1, "'a' found"),
        ("-1", 1, "'-1' found"),
        ("1-0", 1, "'1-0' found"),
        ("0-", 1, "'0-' found"),
        ("0-1-2", 1, "'0-1-2' found"),
        ("0x1", 1, "'0x1' found"),
        ("1e0", 1, "'1e0' found"),
        ("99999999999999999999", 1, "found"),
        (f"{FIRST} {LAST}", 1, "found"),
    ],
)
def test_wrong_cpusets_are_refused(cpusets: str, sessions: int, word: str, tmp_path: Path) -> None:
    reason = refusal(drop_in_config(tmp_path, cpusets=cpusets, session_num=sessions))
    assert reason.startswith("initialize failed: INVALID_ARGUMENT: config key 'cpusets': ")
    assert word in reason


def session_threads() -> Iterator[tuple[str, str]]:
    """Yield name and CPUs of the threads that belong to sessions."""
    for task in Path("/proc/self/task").iterdir():
        try:
            text = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        if "session-" in status["Name"]:
            yield status["Name"], status["Cpus_allowed_list"]


@pytest.mark.skipif(len(CPUS) < 2, reason="pinning shows only where there are two CPUs")
def test_threads_are_pinned_and_move(tiny_model: Path) -> None:
    a, b = str(FIRST), str(LAST)

    def pinned(model: DropInModel) -> dict[str, set[str]]:
        # Requests of one call run on threads of the sessions; a caller with a single one may run it itself.
        assert {answer.status for answer in model.batch([ONE] * 8)[1]} == {200}
        found: dict[str, set[str]] = {}
        for name, cpus in session_threads():
            found.setdefault(next(part for part in ("session-0", "session-1") if part in name), set()).add(cpus)
        return found

    keys: dict[str, Any] = {"session_num": 2, "select_session_policy": "RR", "intra_op_parallelism_threads": 2}
    with DropInModel(tiny_model, cpusets=f"{a};{b}", batch_process_count=8, **keys) as model:
        # A thread sets its name and its CPUs when it first runs.
        wait_until(lambda: pinned(model) == {"session-0": {a}, "session-1": {b}}, "pinned threads")
        wait_until(lambda: {"session-0", "session-1"} <= {name for name, _ in session_threads()}, "named threads")
        assert model.set_cpuset(f"{b};{a}") == ("OK", "")
        assert model.ask("info")["cpusets"] == [b, a]
        wait_until(lambda: pinned(model) == {"session-0": {b}, "session-1": {a}}, "moved threads")
        for wrong, word in ((a, "groups"), (f"{a};{NO_CPU}", f"CPU {NO_CPU}"), ("x;y", "'x'")):
            status, message = model.set_cpuset(wrong)
            assert status == "INVALID_ARGUMENT"
            assert word in message
            assert pinned(model) == {"session-0": {b}, "session-1": {a}}
        assert model.set_cpuset("") == ("OK", "")
        everything = next(pinned(model).values().__iter__())
        assert pinned(model) == {"session-0": everything, "session-1": everything}
        assert everything != {a}
    assert list(session_threads()) == []


@pytest.mark.skipif(len(CPUS) < 2, reason="pinning shows only where there are two CPUs")
def test_threads_between_ops_are_the_sessions_own_and_move(tiny_model: Path) -> None:
    def inter_op_threads() -> list[tuple[str, str]]:
        return sorted(thread for thread in session_threads() if thread[0].endswith("-inter"))

    keys: dict[str, Any] = {"session_num": 2, "select_session_policy": "RR", "intra_op_parallelism_threads": 1}
    with DropInModel(tiny_model, executor="default", inter_op_parallelism_threads=2, **keys) as model:
        names = ["session-0-inter"] * 2 + ["session-1-inter"] * 2
        wait_until(lambda: [name for name, _ in inter_op_threads()] == names, "named threads")
        assert model.set_cpuset(f"{FIRST};{LAST}") == ("OK", "")
        first, last = ("session-0-inter", f"{FIRST}"), ("session-1-inter", f"{LAST}")
        wait_until(lambda: inter_op_threads() == [first, first, last, last], "moved threads")
        for _ in range(4):
            assert model.process(ONE).status == 200
    with DropInModel(tiny_model, executor="single_threaded", inter_op_parallelism_threads=2, **keys):
        assert inter_op_threads() == []


@pytest.mark.skipif(len(CPUS) < 2, reason="a part of the CPUs needs two")
def test_cpusets_are_checked_against_what_the_process_may_use(tiny_model: Path) -> None:
    printed = run_python(
        """
        import json, os, sys
        first, last = int(sys.argv[2]), int(sys.argv[3])
        os.sched_setaffinity(0, {last})
        from helpers.hosts import deeprec_abi
        refused = deeprec_abi.refusal(deeprec_abi.drop_in_config(sys.argv[1], cpusets=str(first)))
        with deeprec_abi.DropInModel(sys.argv[1], cpusets=str(last)) as model:
            print(json.dumps([refused, model.ask("info")["cpusets"], model.set_cpuset(str(first))]))
        """,
        tiny_model,
        FIRST,
        LAST,
    )
    refused, cpusets, moved = json.loads(printed)
    expected = f"CPU {FIRST} found, expected those that the process may use: {LAST}"
    assert refused.startswith("initialize failed: INVALID_ARGUMENT: config key 'cpusets': ")
    assert refused.endswith(expected)
    assert cpusets == [f"{LAST}"]
    assert moved[0] == "INVALID_ARGUMENT"
    assert moved[1].endswith(expected)

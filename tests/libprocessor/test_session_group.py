# SPDX-License-Identifier: Apache-2.0
"""Sessions of one model: who gets a request, on which threads it runs, what waits, and how waiting ends."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.abi_model import AbiModel, StatusError
from helpers.models import model_builders
from helpers.models.gate import Gate, passing
from helpers.system.process_state import num_threads, resident_mb, threads_named
from helpers.system.programs import run_python
from helpers.system.waiting import wait_until

X = np.ones((2, 3), np.float32)
CPUS = sorted(os.sched_getaffinity(0))


def config(**more: object) -> dict[str, object]:
    return {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1, **more}


@dataclass
class Busy:
    """A model with one session that runs request 0 until the gate is opened."""

    model: AbiModel
    gate: Gate


@contextmanager
def make_busy(path: Path, folder: Path, **more: object) -> Iterator[Busy]:
    gate = Gate(folder)
    with AbiModel(path, config(execution="pinned", **more)) as model:
        model.start(gate.inputs, tag=0)
        wait_until(lambda: model.ask("stats")["queued"] == 0, "the start of the first request")
        try:
            yield Busy(model, gate)
        finally:
            gate.open()


@pytest.fixture
def busy(gated_model: Path, tmp_path: Path) -> Iterator[Busy]:
    """A busy model with two places in its queue."""
    with make_busy(gated_model, tmp_path, max_queue_size=2) as busy:
        yield busy


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_round_robin_spreads_evenly(tiny_model: Path, execution: str) -> None:
    with AbiModel(tiny_model, config(session_num=3, select_session_policy="RR", execution=execution)) as model:
        sessions = [model.run({"x": X}).session for _ in range(30)]
        assert Counter(sessions) == {0: 10, 1: 10, 2: 10}
        assert [session["responses"]["OK"] for session in model.ask("stats")["sessions"]] == [10, 10, 10]


@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_mod_is_sticky_to_the_thread(tiny_model: Path, execution: str) -> None:
    with AbiModel(tiny_model, config(session_num=3, select_session_policy="MOD", execution=execution)) as model:
        seen: list[set[int]] = []

        def work() -> None:
            seen.append({model.run({"x": X}).session for _ in range(10)})

        for _ in range(6):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert all(len(sessions) == 1 for sessions in seen), "a thread changed its session"
        assert Counter(session for sessions in seen for session in sessions) == {0: 2, 1: 2, 2: 2}


def test_least_loaded_avoids_the_busy_session(gated_model: Path, tmp_path: Path) -> None:
    with make_busy(gated_model, tmp_path, session_num=2, select_session_policy="LEAST_LOADED") as busy:
        sessions = {busy.model.run(passing(1)).session for _ in range(10)}
        assert len(sessions) == 1
        busy.gate.open()
        (held,) = busy.model.completions(1)
        assert held.answer is not None
        assert held.answer.session not in sessions


def test_round_robin_skips_busy_sessions(gated_model: Path, tmp_path: Path) -> None:
    with make_busy(gated_model, tmp_path, session_num=3, select_session_policy="RR") as busy:
        sessions = Counter(busy.model.run(passing(1)).session for _ in range(10))
        busy.gate.open()
        (held,) = busy.model.completions(1)
        assert held.answer is not None
        assert sorted(sessions.values()) == [5, 5], "in turn, without the one that is busy"
        assert held.answer.session not in sessions


def test_least_loaded_shares_when_idle(tiny_model: Path) -> None:
    with AbiModel(tiny_model, config(session_num=3, select_session_policy="LEAST_LOADED")) as model:
        assert Counter(model.run({"x": X}).session for _ in range(30)) == {0: 10, 1: 10, 2: 10}


def test_callers_that_wait_need_no_thread_and_others_one_per_session(tiny_model: Path) -> None:
    with AbiModel(tiny_model, config(session_num=2)):
        pass  # what TensorFlow starts once
    before = num_threads()
    for execution in ("inline", "pinned"):
        with AbiModel(tiny_model, config(session_num=2, select_session_policy="RR", execution=execution)) as model:
            for _ in range(4):
                assert model.run({"x": X}).queue_ns == 0
            assert num_threads() == before
    with AbiModel(tiny_model, config(session_num=2, select_session_policy="RR", execution="pinned")) as model:
        for tag in range(4):
            model.start({"x": X}, tag=tag)
        assert all(done.answer is not None and done.answer.queue_ns > 0 for done in model.completions(4))
        assert num_threads() == before + 2
    assert num_threads() == before


@pytest.mark.skipif(len(CPUS) < 2, reason="with one CPU, every caller may use the CPUs of the sessions")
def test_callers_on_other_cpus_wait_for_a_thread_of_the_session(tiny_model: Path) -> None:
    with AbiModel(tiny_model, config(cpusets=f"{CPUS[0]}")) as model:

        def queue_ns(cpus: set[int]) -> int:
            os.sched_setaffinity(0, cpus)
            waited = model.run({"x": X}).queue_ns
            assert os.sched_getaffinity(0) == cpus
            return waited

        with ThreadPoolExecutor(max_workers=1) as caller:
            assert caller.submit(queue_ns, set(CPUS)).result() == 0
            assert caller.submit(queue_ns, {CPUS[0]}).result() == 0
            assert not threads_named("session-0")
            assert caller.submit(queue_ns, {CPUS[-1]}).result() > 0
            assert list(threads_named("session-0").values()) == [{CPUS[0]}]


def test_pools_are_isolated_and_pinned_and_move(tiny_model: Path) -> None:
    first, last = CPUS[0], CPUS[-1]
    sessions = {"session_num": 2, "intra_op_parallelism_threads": 3, "worker_threads": 2, "cpusets": f"{first};{last}"}
    with AbiModel(tiny_model, {**sessions, "select_session_policy": "RR"}) as model:
        info = model.ask("info")
        assert (info["execution"], info["cpusets"]) == ("pinned", [str(first), str(last)])
        for tag in range(4):
            model.start({"x": X}, tag=tag)
        model.completions(4)

        def cpus(session: int) -> list[set[int]]:
            return list(threads_named(f"session-{session}").values())

        # Two workers, which start with the first request, and the intra-op pool. A thread sets its CPUs when it runs.
        both = ([{first}] * 5, [{last}] * 5)
        wait_until(lambda: (cpus(0), cpus(1)) == both, f"the threads of both sessions: {cpus(0)}, {cpus(1)}")

        model.set_cpuset(f"{last};{first}")
        assert cpus(0) == [{last}] * 5
        assert cpus(1) == [{first}] * 5
        assert model.ask("info")["cpusets"] == [str(last), str(first)]

        with pytest.raises(StatusError, match=r"INVALID_ARGUMENT.*CPU 4000"):
            model.set_cpuset(f"{last};4000")
        assert cpus(0) == [{last}] * 5, "a refused set changed something"

        model.set_cpuset("")
        assert cpus(0) == cpus(1) == [set(CPUS)] * 5
    assert not threads_named("session-")


def test_further_sessions_share_variables(models_root: Path) -> None:
    import tensorflow as tf

    path = models_root / "forty_megabytes"
    module = tf.Module()
    module.table = tf.Variable(tf.ones([10_000_000, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")])
    def serve(x: object) -> dict[str, object]:
        return {"y": tf.gather(module.table, x)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    with processor.Model(path, config()):
        pass
    before = resident_mb()
    with processor.Model(path, config()):
        one = resident_mb() - before
    with processor.Model(path, config(session_num=9)) as model:
        nine = resident_mb() - before
        np.testing.assert_array_equal(model.run({"x": [5]})["y"], [[1.0]])
    assert one > 30, "the variable of 40 MB is not resident: this would show nothing"
    assert (nine - one) / 8 < 2


def test_full_queue_refuses_and_serves_on(busy: Busy) -> None:
    model = busy.model
    model.start(passing(1), tag=1)
    model.start(passing(2), tag=2)
    for _ in range(3):
        with pytest.raises(StatusError, match=r"RESOURCE_EXHAUSTED.*max_queue_size"):
            model.start(passing(3), tag=3)
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        model.run(passing(3))
    busy.gate.open()
    assert [(c.tag, c.status) for c in model.completions(3)] == [(0, "OK"), (1, "OK"), (2, "OK")]
    assert model.run(passing(4)).y[0] == 4
    assert model.ask("stats")["responses"] == {"OK": 4, "RESOURCE_EXHAUSTED": 4}


def test_requests_run_by_priority_then_by_arrival(gated_model: Path, tmp_path: Path) -> None:
    with make_busy(gated_model, tmp_path) as busy:
        for tag, priority in enumerate([0, 7, -3, 7, 0], start=1):
            busy.model.start(passing(tag), tag=tag, priority=priority)
        busy.gate.open()
        assert [c.tag for c in busy.model.completions(6)] == [0, 2, 4, 1, 5, 3]


def test_deadline_fires_while_the_session_is_busy(busy: Busy) -> None:
    deadline = now_us() + 50_000
    busy.model.start(passing(1), tag=1, deadline_us=deadline)
    with pytest.raises(StatusError, match="DEADLINE_EXCEEDED"):
        busy.model.run(passing(1), deadline_us=now_us() + 50_000)
    # The session is still held up: nothing but the deadline can have ended it.
    (late,) = busy.model.completions(1)
    assert (late.tag, late.status, late.answer) == (1, "DEADLINE_EXCEEDED", None)
    assert deadline <= late.time * 1e6 < deadline + 5e6
    wait_until(lambda: busy.model.ask("stats")["in_flight"] == 1, "that only the one that is held up is left")


def test_deadline_that_has_passed_is_not_accepted(busy: Busy) -> None:
    for deadline in (now_us() - 1, 1, -1, -(2**63)):
        with pytest.raises(StatusError, match="DEADLINE_EXCEEDED"):
            busy.model.start(passing(1), tag=1, deadline_us=deadline)
    busy.gate.open()
    assert [c.tag for c in busy.model.completions(1)] == [0]


def test_the_largest_deadline_never_passes(busy: Busy) -> None:
    never = 2**63 - 1
    busy.model.start(passing(1), tag=1, deadline_us=never)
    threading.Timer(0.1, busy.gate.open).start()
    assert busy.model.run(passing(2), deadline_us=never).y[0] == 2
    assert [c.status for c in busy.model.completions(2)] == ["OK", "OK"]
    busy.model.drain(never)


def test_far_deadlines_of_ended_requests_take_no_memory(tiny_model: Path) -> None:
    # In a process of its own: what earlier tests have left behind comes and goes by more than this.
    grown = run_python(
        """
        import sys, time
        import numpy as np
        from helpers.hosts.abi_model import AbiModel
        from helpers.system.process_state import resident_mb

        threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
        with AbiModel(sys.argv[1], {**threads, "execution": "pinned", "max_queue_size": 4096}) as model:

            def serve(number):
                for _ in range(number // 1000):
                    for tag in range(1000):
                        deadline_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 + 10**10
                        model.start({"x": np.ones((2, 3), np.float32)}, tag, deadline_us=deadline_us)
                    assert {c.status for c in model.completions(1000)} == {"OK"}

            serve(20000)
            before = resident_mb()
            serve(30000)
            print(resident_mb() - before)
        """,
        tiny_model,
    )
    # Each that was kept would take 64 bytes, 1.9 MB together.
    assert float(grown) < 1


def test_cancel_ends_only_the_waiting_request(busy: Busy) -> None:
    model = busy.model
    number = model.start(passing(1), tag=1)
    other = model.start(passing(2), tag=2)
    model.cancel(number)
    (cancelled,) = model.completions(1)
    assert (cancelled.tag, cancelled.status, cancelled.answer) == (1, "CANCELLED", None)
    busy.gate.open()
    assert [(c.tag, c.status) for c in model.completions(2)] == [(0, "OK"), (2, "OK")]
    for ended in (number, other, 10**9):
        with pytest.raises(StatusError, match="NOT_FOUND"):
            model.cancel(ended)


def test_request_that_runs_is_answered_at_once_when_it_is_cancelled(gated_model: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with AbiModel(gated_model, config(execution="pinned")) as model:
        number = model.start(gate.inputs, tag=7)
        wait_until(lambda: model.ask("stats")["queued"] == 0, "the start of the request")
        model.cancel(number)
        # Its kernel cannot be interrupted: it still waits for the gate.
        assert [(c.tag, c.status) for c in model.completions(1)] == [(7, "CANCELLED")]
        assert model.ask("stats")["in_flight"] == 1
        with pytest.raises(StatusError, match="NOT_FOUND"):
            model.cancel(number)
        gate.open()
        wait_until(lambda: model.ask("stats")["in_flight"] == 0, "the end of its work")
        assert model.ask("stats")["responses"] == {"CANCELLED": 1}


@pytest.mark.parametrize("more", [{}, {"execution": "pinned"}, {"batching": {"mode": "zero_wait"}}])
def test_request_that_runs_is_answered_at_its_deadline(gated_model: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    with AbiModel(gated_model, config(**more)) as model:
        late_us: list[int] = []
        # On a busy machine this thread, or the one that answers, may wait for a CPU. Or the deadline passes before the
        # work begins, and nothing waits at the gate.
        for attempt in range(20):
            (tmp_path / str(attempt)).mkdir()
            gate = Gate(tmp_path / str(attempt))
            deadline = now_us() + 100_000
            model.start(gate.inputs, tag=7, deadline_us=deadline)
            ((tag, status),) = [(c.tag, c.status) for c in model.completions(1)]
            late = now_us() - deadline
            assert (tag, status) == (7, "DEADLINE_EXCEEDED")
            if model.ask("stats")["in_flight"] != 1:
                continue
            late_us.append(late)
            gate.open()
            wait_until(lambda: model.ask("stats")["in_flight"] == 0, "the end of its work")
            if late < 50_000:
                break
        assert 0 <= min(late_us) < 50_000
        assert model.ask("stats")["responses"] == {"DEADLINE_EXCEEDED": attempt + 1}


def test_drain_waits_for_admitted_requests_and_refuses_others(busy: Busy) -> None:
    model = busy.model
    model.start(passing(1), tag=1)
    with pytest.raises(StatusError, match=r"DEADLINE_EXCEEDED.*requests left"):
        model.drain(now_us() + 20_000)
    with pytest.raises(StatusError, match="UNAVAILABLE"):
        model.run(passing(2))
    with pytest.raises(StatusError, match="UNAVAILABLE"):
        model.start(passing(2), tag=2)
    assert model.ask("info")["state"] == "draining"
    threading.Timer(0.1, busy.gate.open).start()
    model.drain()
    assert [(c.tag, c.status) for c in model.completions(2)] == [(0, "OK"), (1, "OK")]


def test_free_cancels_waiting_requests_and_waits_for_running_ones(busy: Busy) -> None:
    model = busy.model
    model.start(passing(1), tag=1)
    heard: list[str] = []

    def wait_inside() -> None:
        try:
            model.run(passing(2))
        except StatusError as error:
            heard.append(error.status)

    thread = threading.Thread(target=wait_inside)
    thread.start()
    wait_until(lambda: model.ask("stats")["queued"] == 2, "the third request")
    begin = time.monotonic()
    threading.Timer(0.2, busy.gate.open).start()
    model.free()
    assert time.monotonic() - begin >= 0.2, "it did not wait for the request that ran"
    thread.join()
    assert heard == ["CANCELLED"]
    assert {c.tag: c.status for c in model.completions(2)} == {0: "OK", 1: "CANCELLED"}
    with pytest.raises(StatusError, match="FAILED_PRECONDITION"):
        model.run(passing(1))


def test_queue_is_readable_exactly_while_completions_wait(tiny_model: Path) -> None:
    def readable(model: AbiModel, timeout: float) -> bool:
        return bool(select.select([model.queue_fd], [], [], timeout)[0])

    with AbiModel(tiny_model, config(session_num=2, select_session_policy="RR")) as model:
        assert not readable(model, 0)
        tags: list[int] = []
        for tag in range(200):
            model.start({"x": X + tag}, tag)
        wait_until(lambda: model.ask("stats")["in_flight"] == 0, "the end of all")
        assert readable(model, 0)
        for completion in model.completions(199):
            tags.append(completion.tag)
            assert completion.answer is not None
            np.testing.assert_array_equal(completion.answer.y, model_builders.linear_score(X + completion.tag))
        assert readable(model, 0), "one is left"
        tags.append(model.completions(1)[0].tag)
        assert not readable(model, 0)
        assert sorted(tags) == list(range(200))


def test_worker_threads_run_requests_of_one_session_at_once(gated_model: Path, tmp_path: Path) -> None:
    with make_busy(gated_model, tmp_path, worker_threads=2) as busy:
        assert busy.model.run(passing(1)).session == 0
        wait_until(lambda: busy.model.ask("stats")["in_flight"] == 1, "that only the one that is held up is left")
        busy.gate.open()
        assert [c.status for c in busy.model.completions(1)] == ["OK"]


def test_parallel_ops_with_parallel_parts_do_not_wait_for_each_other(models_root: Path) -> None:
    model = model_builders.build_parallel(models_root / "parallel")
    # In a process of its own, since a session whose threads wait for each other cannot be freed.
    printed = run_python(
        """
        import sys, threading
        import numpy as np
        import processor
        keys = {"executor": "default", "intra_op_parallelism_threads": 2, "inter_op_parallelism_threads": 2}
        model = processor.Model(sys.argv[1], keys)
        x = np.ones((64, 256), np.float32)
        def work():
            for _ in range(20):
                assert (model.run({"x": x})["y"] == 256 * 36).all()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        model.close()
        print("answered")
        """,
        model,
    )
    assert printed == "answered\n"

# SPDX-License-Identifier: Apache-2.0
"""Requests that are put together: answers are those of each alone, faults stay where they are, nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.abi_model import AbiModel, StatusError
from helpers.hosts.contract_messages import decode
from helpers.models.batched_answers import Inputs, batches, batching_config, build_batched, same_answers
from helpers.models.gate import Gate, build_gated_rows
from helpers.models.model_builders import VOCABULARY, linear_score
from helpers.system.waiting import wait_until
from load_tests.request_files import encode_request


@pytest.fixture(scope="module")
def gated_rows(models_root: Path) -> Path:
    """See `gate.build_gated_rows`."""
    return build_gated_rows(models_root / "gated_rows")


class Held:
    """A model with one session, which is busy until `release`."""

    def __init__(self, model: processor.Model, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.model, self._folder, self._pool = model, folder, pool
        self._turns = 0
        self.close()

    def close(self) -> None:
        """Let a request take the session."""
        self._turns += 1
        folder = self._folder / str(self._turns)
        folder.mkdir()
        self._gate = Gate(folder)
        self._blocker = self._pool.submit(self.model.run, self._gate.inputs, "gate")
        wait_until(lambda: self.model.stats()["sessions"][0]["load"] == 1, "the request that blocks the session")

    def submit(self, inputs: Inputs, **more: Any) -> Future[dict[str, np.ndarray]]:
        """Run a request on a thread of its own and see it wait."""
        before = self.model.stats()["queued"]
        future = self._pool.submit(self.model.run, inputs, **more)
        wait_until(lambda: future.done() or self.model.stats()["queued"] > before, "a request that waits")
        return future

    def release(self) -> None:
        self._gate.open()
        self._blocker.result(60)


@contextmanager
def hold(path: Path, folder: Path, **more: object) -> Iterator[Held]:
    with (
        ThreadPoolExecutor(32) as pool,
        processor.Model(path, batching_config(**{"mode": "zero_wait", **more})) as model,
    ):
        held = Held(model, folder, pool)
        try:
            yield held
        finally:
            held.release()


def rows(number: float, count: int = 1, columns: int = 3) -> Inputs:
    return {"x": np.full((count, columns), number, np.float32)}


def expected(inputs: Inputs) -> np.ndarray:
    return 2 * inputs["x"].sum(axis=1)


@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_a_free_session_runs_all_waiting_requests(gated_rows: Path, tmp_path: Path, execution: str) -> None:
    requests = [rows(i, count=1 + i % 3) for i in range(16)]

    def ask_all(held: Held) -> None:
        futures = [held.submit(request) for request in requests]
        held.release()
        for request, future in zip(requests, futures, strict=True):
            np.testing.assert_array_equal(future.result(60)["y"], expected(request))

    with hold(gated_rows, tmp_path, execution=execution) as held:
        ask_all(held)
        # The first that were put together ran alone as well, to see whether that may be.
        assert held.model.stats()["batching"]["repeated"] == 1
        assert set(batches(held.model)) == {"1"}
        held.close()
        ask_all(held)
        stats = held.model.stats()
        assert stats["batching"]["repeated"] == 1
        assert batches(held.model)["16"] == 1
        assert stats["batching"]["rows"]["max"] == sum(1 + i % 3 for i in range(16))
        assert stats["responses"] == {"OK": 34}
        # A request is counted as ended shortly after its caller has the response.
        wait_until(lambda: held.model.stats()["queued"] == held.model.stats()["in_flight"] == 0)


def test_batched_numbers_equal_separate_runs(tiny_model: Path) -> None:
    requests = [{"x": np.full((1, 3), i, np.float32)} for i in range(8)]
    with same_answers(tiny_model, requests) as model:
        assert batches(model)["8"] >= 1


def test_batched_strings_equal_separate_runs(string_model: Path) -> None:
    names = [*VOCABULARY, "none of these, and longer than a string that lies in its tensor"]
    requests = [
        {"item": [[name.encode()] * (1 + i % 2) for name in names][i % 5], "price": np.full(1 + i % 2, i, np.float32)}
        for i in range(10)
    ]
    for request in requests:
        request["item"] = np.array(request["item"], object)
    with same_answers(string_model, requests) as model:
        assert max(map(int, batches(model))) > 1


@pytest.mark.parametrize("dtype", ["DT_DOUBLE", "DT_INT64", "DT_BOOL", "DT_HALF", "DT_COMPLEX64", "DT_STRING"])
def test_batches_of_all_kinds_of_memory_equal_separate_runs(echo_model: Path, dtype: str) -> None:
    values = {
        "DT_DOUBLE": np.float64,
        "DT_INT64": np.int64,
        "DT_BOOL": np.bool_,
        "DT_HALF": np.float16,
        "DT_COMPLEX64": np.complex64,
    }
    requests: list[Inputs] = [{"x": np.full((2, 3), i % 2, values.get(dtype, object))} for i in range(4)]
    if dtype == "DT_STRING":
        requests = [{"x": np.array([[b"a" * 40, b"%d" % i]], object)} for i in range(4)]
    with same_answers(echo_model, requests, dtype) as model:
        assert max(map(int, batches(model))) > 1


def test_a_model_with_a_state_runs_once_for_each_request(tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(tf: Any, module: Any, x: Any) -> dict[str, Any]:
        return {"y": x + module.counter.assign_add(1.0)}

    path = build_batched(tmp_path / "counting", serve, [tf.TensorSpec([None], tf.float32, name="x")])
    with ThreadPoolExecutor(8) as pool, processor.Model(path, batching_config("timed", max_wait_us=20_000)) as model:
        answers = [pool.submit(model.run, {"x": np.zeros(1, np.float32)}) for _ in range(24)]
        found = sorted(float(answer.result(60)["y"][0]) for answer in answers)
        assert found == [found[0] + i for i in range(24)]


def test_other_signatures_outputs_and_shapes_run_apart(multi_signature_model: Path, gated_rows: Path) -> None:
    with ThreadPoolExecutor(24) as pool:
        with processor.Model(multi_signature_model, batching_config("timed", max_wait_us=20_000)) as model:
            for _ in range(2):
                futures = []
                for i in range(8):
                    pair = {"a": np.array([i], np.int64), "b": np.array([1], np.int64)}
                    futures.append((pool.submit(model.run, {"x": np.full((1, 2), i, np.float32)}), "twice", 2.0 * i))
                    futures.append((pool.submit(model.run, pair, "total", ["difference", "sum"]), "sum", i + 1))
                    futures.append((pool.submit(model.run, pair, "total", ["difference"]), "difference", i - 1))
                for future, name, value in futures:
                    answer = future.result(60)[name]
                    assert answer.flat[0] == value
        requests = [rows(i, count=1 + i % 4, columns=1 + i % 3) for i in range(12)]
        with same_answers(gated_rows, requests) as model:
            assert max(map(int, batches(model))) > 1


def test_a_fault_fails_only_its_own_request(gated_rows: Path, tmp_path: Path) -> None:
    with hold(gated_rows, tmp_path) as held:
        requests = [rows(i) for i in range(6)]
        futures = [held.submit(request) for request in requests]
        poison = held.submit(rows(-1))
        with pytest.raises(processor.InvalidArgumentError, match="int32"):
            held.model.run({"x": np.zeros((1, 3), np.int32)})
        with pytest.raises(processor.InvalidArgumentError, match="malformed"):
            held.model.process(b"\xff\xff\xff", protocol="eas")
        held.release()
        for request, future in zip(requests, futures, strict=True):
            np.testing.assert_array_equal(future.result(60)["y"], expected(request))
        with pytest.raises(processor.InvalidArgumentError, match="assert"):
            poison.result(60)
        assert held.model.stats()["batching"]["repeated"] == 1


@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_a_deadline_ends_a_waiting_request(gated_rows: Path, tmp_path: Path, execution: str) -> None:
    with hold(gated_rows, tmp_path, execution=execution) as held:
        begin = time.monotonic()
        late = held.submit(rows(1), deadline=begin + 0.1)
        patient = held.submit(rows(2), deadline=begin + 600)
        with pytest.raises(processor.DeadlineExceededError):
            late.result(60)
        assert time.monotonic() - begin < 30
        held.release()
        np.testing.assert_array_equal(patient.result(60)["y"], expected(rows(2)))


@pytest.mark.parametrize("mode", ["zero_wait", "timed"])
@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_started_requests_are_batched(gated_rows: Path, tmp_path: Path, mode: str, execution: str) -> None:
    gate = Gate(tmp_path)
    with AbiModel(gated_rows, batching_config(mode, execution=execution, max_wait_us=1000)) as model:
        model.start(gate.inputs, tag=0, signature="gate")
        wait_until(lambda: model.ask("stats")["sessions"][0]["load"] == 1, "the request that blocks the session")
        deadline_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 + 100_000
        numbers = [model.start(rows(i), tag=i) for i in range(1, 7)]
        model.start(rows(7), tag=7, deadline_us=deadline_us)
        model.cancel(numbers[1])
        with pytest.raises(StatusError, match="NOT_FOUND"):
            model.cancel(numbers[1])
        with pytest.raises(StatusError, match="NOT_FOUND"):
            model.cancel(0)
        ended = {completion.tag: completion for completion in model.completions(2)}
        assert {tag: completion.status for tag, completion in ended.items()} == {2: "CANCELLED", 7: "DEADLINE_EXCEEDED"}
        gate.open()
        for completion in model.completions(6):
            assert completion.status == "OK"
            assert completion.answer is not None
            if completion.tag != 0:
                np.testing.assert_array_equal(completion.answer.y, expected(rows(completion.tag)))
        assert model.ask("stats")["batching"]["repeated"] == 1  # five that waited, in the trial


def test_a_full_queue_refuses_requests(gated_rows: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with AbiModel(gated_rows, batching_config("zero_wait", max_queue_size=2)) as model:
        model.start(gate.inputs, tag=0, signature="gate")
        wait_until(lambda: model.ask("stats")["sessions"][0]["load"] == 1, "the request that blocks the session")
        model.start(rows(1), tag=1)
        model.start(rows(2), tag=2)
        with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
            model.start(rows(3), tag=3)
        gate.open()
        assert [completion.status for completion in model.completions(3)] == ["OK"] * 3


def test_a_batch_call_is_one_run(gated_rows: Path) -> None:
    requests = [rows(i) for i in range(12)]
    with processor.Model(gated_rows, batching_config("timed", max_rows=12, max_wait_us=500_000)) as model:
        for _ in range(2):  # the trial, and what comes after it
            answers = model.process_many([encode_request(request, "eas") for request in requests])
            for request, answer in zip(requests, answers, strict=True):
                np.testing.assert_array_equal(decode(answer)["y"], expected(request))
        assert batches(model) == {"1": 12, "16": 1}


def test_drain_answers_waiting_requests(gated_rows: Path, tmp_path: Path) -> None:
    with hold(gated_rows, tmp_path) as held:
        futures = [held.submit(rows(i)) for i in range(5)]
        with pytest.raises(processor.DeadlineExceededError, match="6 requests"):
            held.model.drain(deadline=time.monotonic() + 0.05)
        with pytest.raises(processor.UnavailableError):
            held.model.run(rows(9))
        held.release()
        held.model.drain(deadline=time.monotonic() + 60)
        assert [float(future.result(60)["y"][0]) for future in futures] == [6.0 * i for i in range(5)]


@pytest.mark.parametrize("mode", ["zero_wait", "timed"])
def test_close_cancels_waiting_requests(gated_rows: Path, tmp_path: Path, mode: str) -> None:
    with hold(gated_rows, tmp_path, mode=mode, max_wait_us=10_000_000) as held:
        futures = [held.submit(rows(i)) for i in range(5)]
        closer = threading.Thread(target=held.model.close)
        closer.start()
        for future in futures:
            with pytest.raises((processor.CancelledError, processor.FailedPreconditionError)):
                future.result(60)
        held.release()
        closer.join(60)
        assert not closer.is_alive()


def test_modes_are_switched_under_load(gated_rows: Path) -> None:
    stop, wrong = threading.Event(), []

    def ask(model: processor.Model, number: int) -> int:
        count = 0
        while not stop.is_set():
            request = rows(number + count % 5, count=1 + count % 3, columns=2 + number % 2)
            if not np.array_equal(model.run(request)["y"], expected(request)):
                wrong.append(request)
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool, processor.Model(gated_rows, batching_config("off", session_num=2)) as model:
        futures = [pool.submit(ask, model, number) for number in range(8)]
        for mode in ("zero_wait", "timed", "off", "zero_wait", "off", "timed", "zero_wait"):
            model.set_batching(mode, max_rows=16, max_wait_us=300)
            assert model.info["batching"] == {"mode": mode, "max_rows": 16, "max_wait_us": 300}
            before = model.stats()["requests"]
            wait_until(lambda before=before: model.stats()["requests"] > before + 40, f"requests in mode {mode}")
        stop.set()
        asked = sum(future.result(60) for future in futures)
        assert not wrong
        assert model.stats()["responses"] == {"OK": asked}


@pytest.mark.parametrize(
    ("batching", "message"),
    [
        ({"mode": "sometimes"}, "zero_wait"),
        ({"mode": "timed", "max_rows": 0}, "max_rows"),
        ({"mode": "timed", "max_wait_us": -1}, "max_wait_us"),
        ({"mode": "timed", "rows": 4}, "rows"),
        ("timed", "object"),
    ],
)
def test_wrong_options_are_named(tiny_model: Path, batching: object, message: str) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=f"batching.*{message}"):
        processor.Model(tiny_model, {"batching": batching})


def test_wrong_options_change_nothing(tiny_model: Path) -> None:
    with processor.Model(tiny_model, batching_config("timed", max_wait_us=7)) as model:
        with pytest.raises(processor.InvalidArgumentError, match="mode"):
            model.set_batching("sometimes")  # type: ignore[arg-type]
        assert model.info["batching"] == {"mode": "timed", "max_rows": 256, "max_wait_us": 7}
        x = np.ones((1, 3), np.float32)
        np.testing.assert_allclose(model.run({"x": x})["y"], linear_score(x), rtol=1e-6)

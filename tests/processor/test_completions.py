# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.contract_messages import decode
from helpers.models import model_builders
from helpers.models.gate import Gate, passing
from helpers.models.slow_requests import loops_for
from load_tests.request_files import encode_request
from processor import Model, _completions

X = np.array([[1, 2, 3]], np.float32)


@pytest.fixture
def slow(slow_model: Path) -> Iterator[Model]:
    # One worker: all later requests wait for the long one.
    with Model(slow_model, {"intra_op_parallelism_threads": 1, "worker_threads": 1}) as model:
        yield model


def test_arun_returns_the_same_as_run(tiny: Model) -> None:
    async def main() -> None:
        answers = await asyncio.gather(*(tiny.arun({"x": X * i}) for i in range(300)))
        for i, answer in enumerate(answers):
            np.testing.assert_allclose(answer["y"], model_builders.linear_score(X * i), rtol=1e-5)

    asyncio.run(main())


def test_aprocess_returns_the_same_as_process(tiny: Model) -> None:
    request = encode_request({"x": X}, "eas")
    answer = asyncio.run(tiny.aprocess(request))
    np.testing.assert_allclose(decode(answer)["y"], model_builders.linear_score(X), rtol=1e-5)


def test_arun_raises_the_same_as_run(tiny: Model) -> None:
    async def main() -> None:
        with pytest.raises(processor.InvalidArgumentError, match="z"):
            await tiny.arun({"z": X})
        with pytest.raises(processor.NotFoundError, match="nothing"):
            await tiny.arun({"x": X}, outputs=["nothing"])
        with pytest.raises(processor.DeadlineExceededError):
            await tiny.arun({"x": X}, deadline=time.monotonic() - 1)
        with pytest.raises(processor.UnimplementedError):
            await tiny.aprocess(b"", protocol="smoke")
        assert (await tiny.arun({"x": X}))["y"].shape == (1, 1)

    asyncio.run(main())


def test_arun_copies_its_inputs(tiny: Model) -> None:
    async def main() -> None:
        x = X.copy()
        task = asyncio.ensure_future(tiny.arun({"x": x}))
        await asyncio.sleep(0)  # the request is handed over
        x[:] = 1000
        del x
        gc.collect()
        np.testing.assert_allclose((await task)["y"], model_builders.linear_score(X), rtol=1e-5)

    asyncio.run(main())


def test_event_loop_is_not_blocked_while_a_request_runs(slow: Model) -> None:
    loops = loops_for(slow, 0.5)

    async def main() -> int:
        ticks = 0
        task = asyncio.ensure_future(slow.arun({"x": [1.0], "loops": loops}))
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        assert (await task)["y"].tolist() == [1.0]
        return ticks

    # If it were blocked, it would tick at most once.
    assert asyncio.run(main()) > 3


def test_cancelled_task_cancels_its_waiting_request(slow: Model) -> None:
    loops = loops_for(slow, 0.5)

    async def main() -> None:
        running = asyncio.ensure_future(slow.arun({"x": [1.0], "loops": loops}))
        waiting = asyncio.ensure_future(slow.arun({"x": [2.0], "loops": 1}))
        await asyncio.sleep(0)  # both are handed over
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not running.done()
        assert (await running)["y"].tolist() == [1.0]
        assert (await slow.arun({"x": [3.0], "loops": 1}))["y"].tolist() == [3.0]

    asyncio.run(main())
    assert slow.stats()["responses"]["CANCELLED"] == 1


def test_cancelled_task_of_a_running_request_stops_it(slow: Model) -> None:
    endless = loops_for(slow, 600)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow.arun({"x": [1.0], "loops": endless}), 0.05)
        assert (await asyncio.wait_for(slow.arun({"x": [3.0], "loops": 1}), 60))["y"].tolist() == [3.0]

    asyncio.run(main())
    assert slow.stats()["responses"] == {"CANCELLED": 1, "OK": slow.stats()["responses"]["OK"]}


def test_running_request_fails_at_its_deadline(slow: Model) -> None:
    endless = loops_for(slow, 600)

    async def main() -> None:
        with pytest.raises(processor.DeadlineExceededError):
            await slow.arun({"x": [2.0], "loops": endless}, deadline=time.monotonic() + 0.1)
        assert (await asyncio.wait_for(slow.arun({"x": [3.0], "loops": 1}), 60))["y"].tolist() == [3.0]

    asyncio.run(main())


@pytest.mark.parametrize("config", [{}, {"execution": "pinned"}, {"batching": {"mode": "zero_wait"}}])
def test_waiting_caller_gets_the_error_at_the_deadline(slow_model: Path, config: dict[str, Any]) -> None:
    with Model(slow_model, config) as model:
        endless = loops_for(model, 600)
        began = time.monotonic()
        with pytest.raises(processor.DeadlineExceededError):
            model.run({"x": [2.0], "loops": endless}, deadline=began + 0.1)
        assert 0.1 <= time.monotonic() - began < 60
        assert model.run({"x": [3.0], "loops": 1})["y"].tolist() == [3.0]


def test_closing_a_model_stops_running_requests_after_the_grace_time(slow_model: Path) -> None:
    async def main(model: Model) -> float:
        task = asyncio.ensure_future(model.arun({"x": [1.0], "loops": loops_for(model, 600)}))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await asyncio.to_thread(model.close)
        with pytest.raises(processor.CancelledError, match="freed"):
            await task
        return time.monotonic() - began

    assert 0.3 <= asyncio.run(main(Model(slow_model, {"drain_seconds": 0.3}))) < 60


def test_closing_a_model_that_was_drained_gives_no_more_time(slow_model: Path) -> None:
    async def main() -> None:
        model = Model(slow_model, {"drain_seconds": 3600})
        task = asyncio.ensure_future(model.arun({"x": [1.0], "loops": loops_for(model, 600)}))
        await asyncio.sleep(0.05)
        with pytest.raises(processor.DeadlineExceededError):
            await asyncio.to_thread(model.drain, time.monotonic() + 0.1)
        await asyncio.to_thread(model.close)
        with pytest.raises(processor.CancelledError):
            await task

    asyncio.run(main())


def test_waiting_request_fails_at_its_deadline(slow: Model) -> None:
    loops = loops_for(slow, 0.5)

    async def main() -> None:
        running = asyncio.ensure_future(slow.arun({"x": [1.0], "loops": loops}))
        await asyncio.sleep(0)  # it is handed over, and the next one right behind it
        with pytest.raises(processor.DeadlineExceededError):
            await slow.arun({"x": [2.0], "loops": 1}, deadline=time.monotonic() + 0.1)
        await running

    asyncio.run(main())


def test_urgent_requests_go_first(gated_model: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    ended: list[str] = []

    async def ask(name: str, inputs: dict[str, Any], priority: int) -> None:
        await model.arun(inputs, priority=priority)
        ended.append(name)

    async def queued(number: int, in_flight: int) -> None:
        async with asyncio.timeout(60):
            while [model.stats()[key] for key in ("queued", "in_flight")] != [number, in_flight]:
                await asyncio.sleep(0.005)

    async def main() -> None:
        first = asyncio.ensure_future(ask("first", gate.inputs, 0))
        await queued(0, 1)
        priorities = {"idle": -1, "usual": 0, "urgent": 9}
        others = [asyncio.ensure_future(ask(name, passing(1.0), value)) for name, value in priorities.items()]
        await queued(3, 4)
        await asyncio.to_thread(gate.open)
        await asyncio.gather(first, *others)

    with Model(gated_model, {"intra_op_parallelism_threads": 1, "worker_threads": 1}) as model:
        asyncio.run(main())
    assert ended == ["first", "urgent", "usual", "idle"]


def test_closing_a_model_ends_waiting_requests(slow_model: Path) -> None:
    async def main() -> None:
        model = Model(slow_model, {"worker_threads": 1})
        loops = loops_for(model, 0.3)
        tasks = [asyncio.ensure_future(model.arun({"x": [1.0], "loops": loops})) for _ in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(model.close)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(answer, processor.CancelledError) for answer in answers), answers
        assert all(isinstance(answer, processor.CancelledError | dict) for answer in answers), answers
        with pytest.raises(processor.FailedPreconditionError, match="closed"):
            await model.arun({"x": [1.0], "loops": 1})

    asyncio.run(main())


def test_every_event_loop_has_its_own_queue(tiny: Model) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        async def main() -> None:
            answers = await asyncio.gather(*(tiny.arun({"x": X * number * i}) for i in range(100)))
            for i, answer in enumerate(answers):
                np.testing.assert_allclose(answer["y"], model_builders.linear_score(X * number * i), rtol=1e-5)

        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_closed_event_loops_leak_nothing(tiny: Model) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(tiny.aprocess(b""))
    before = descriptors()
    for _ in range(50):
        asyncio.run(tiny.aprocess(b""))
    gc.collect()
    assert descriptors() <= before + 1


def test_event_loop_may_be_closed_while_a_request_runs(slow: Model) -> None:
    loops = loops_for(slow, 0.3)
    loop = asyncio.new_event_loop()
    loop.create_task(slow.arun({"x": [1.0], "loops": loops})).add_done_callback(lambda task: task.cancelled())
    loop.run_until_complete(asyncio.sleep(0.05))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    # The request may still run when its loop is closed; the next loop frees the queue.
    assert slow.run({"x": [2.0], "loops": 1})["y"].tolist() == [2.0]
    while slow.stats()["in_flight"] > 0:
        time.sleep(0.02)
    assert asyncio.run(slow.arun({"x": [3.0], "loops": 1}))["y"].tolist() == [3.0]
    assert loop not in _completions._queues

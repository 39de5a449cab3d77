# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

import processor
from helpers.models import model_builders
from helpers.models.slow_requests import loops_for
from processor import Model


def test_threads_get_their_own_answers(string_model: Path) -> None:
    failures: list[BaseException] = []

    def work(model: Model, number: int) -> None:
        try:
            for i in range(200):
                items = [b"item %d of %d" % (row, number) for row in range(i % 7 + 1)]
                price = np.full(len(items), number, np.float32)
                out = model.run({"item": items, "price": price})
                assert out["label"].tolist() == [item + b"!" for item in items]
                assert out["score"].tolist() == [40.0 + number] * len(items)
        except BaseException as error:
            failures.append(error)

    with Model(string_model, {"session_num": 2}) as model:
        threads = [threading.Thread(target=work, args=(model, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_close_while_threads_run(tiny_model: Path) -> None:
    x = np.ones((4, 3), np.float32)
    ends: list[BaseException] = []

    def work(model: Model) -> None:
        try:
            while True:
                np.testing.assert_allclose(model.run({"x": x})["y"], model_builders.linear_score(x), rtol=1e-5)
        except BaseException as error:
            ends.append(error)

    for _ in range(5):
        model = Model(tiny_model, {"session_num": 2})
        threads = [threading.Thread(target=work, args=(model,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        model.close()
        for thread in threads:
            thread.join()
    assert len(ends) == 20
    allowed = (processor.FailedPreconditionError, processor.CancelledError, processor.UnavailableError)
    assert all(isinstance(end, allowed) for end in ends), ends


def test_gil_is_free_while_a_request_runs(slow_model: Path) -> None:
    with Model(slow_model, {"intra_op_parallelism_threads": 1}) as model:
        loops = loops_for(model, 0.5)
        thread = threading.Thread(target=model.run, args=({"x": [0.0], "loops": loops},))
        thread.start()
        ticks = 0
        while thread.is_alive():
            time.sleep(0.002)
            ticks += 1
        # If the GIL were held, the main thread would not have woken before the end.
        assert ticks > 5

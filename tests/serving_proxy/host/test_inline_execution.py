# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from processor import Answer
from serving_proxy.host.call import Call, Operation
from serving_proxy.host.inline_execution import RequestDurations, kind_of

PREDICT = Operation("tfserving", "Predict")


def _answer(run_us: float, total_us: float | None = None) -> Answer:
    run, total = int(run_us * 1000), int((run_us if total_us is None else total_us) * 1000)
    known = {"decode_ns": 0, "run_ns": run, "encode_ns": 0, "total_ns": total, "queue_ns": 0}
    return Answer(**{name: known.get(name) for name in Answer._fields})  # type: ignore[arg-type]


KIND = kind_of(Call(PREDICT, b"\x0a\x03abc" + bytes(20)))


def test_unknown_kind_is_not_short() -> None:
    assert not RequestDurations().is_short(KIND)


@pytest.mark.parametrize(("run_us", "short"), [(40, True), (99, True), (101, False), (5000, False)])
def test_kind_is_as_short_as_its_requests(run_us: float, short: bool) -> None:
    durations = RequestDurations()
    durations.learn(KIND, _answer(run_us), inline=False)
    assert durations.is_short(KIND) is short


def test_average_moves() -> None:
    durations = RequestDurations()
    durations.learn(KIND, _answer(1000), inline=False)
    for _ in range(20):
        durations.learn(KIND, _answer(40), inline=False)
    assert durations.is_short(KIND)
    for _ in range(10):
        durations.learn(KIND, _answer(1000), inline=True)
    assert not durations.is_short(KIND)


def test_short_requests_stay_short_if_some_are_interrupted() -> None:
    durations = RequestDurations()
    durations.learn(KIND, _answer(40), inline=False)
    for number in range(200):
        interrupted = number % 10 == 0
        durations.learn(KIND, _answer(4000 if interrupted else 40), inline=True)
        assert durations.is_short(KIND)


def test_short_request_that_waits_is_kept_off_the_loop_longer_each_time() -> None:
    """Waiting for a batch is not part of the run time."""
    durations = RequestDurations()
    durations.learn(KIND, _answer(40), inline=False)
    gaps = []
    for _ in range(3):
        assert durations.is_short(KIND)
        durations.learn(KIND, _answer(40, total_us=2000), inline=True)
        gap = 0
        while not durations.is_short(KIND):
            durations.learn(KIND, _answer(40), inline=False)
            gap += 1
        gaps.append(gap)
    assert gaps == [100, 400, 1600]


def test_kind_whose_graph_has_loops_is_kept_off_the_loop_for_long() -> None:
    durations = RequestDurations()
    durations.learn(KIND, _answer(40), inline=False)
    durations.refuse(KIND)
    for _ in range(50):
        assert not durations.is_short(KIND)
        durations.learn(KIND, _answer(40), inline=False)
    for _ in range(100):
        durations.learn(KIND, _answer(40), inline=False)
    assert durations.is_short(KIND), "another version may have taken its place"


def test_kinds_of_requests_differ_by_operation_model_and_body() -> None:
    body = b"\x0a\x03abc" + bytes(20)
    same = Call(PREDICT, b"\x0a\x03abc" + b"\x01" * 20)
    assert kind_of(same) == KIND
    others = [
        Call(PREDICT, b"\x0a\x03abd" + bytes(20)),
        Call(PREDICT, body + bytes(1000)),
        Call(PREDICT, body, model="m"),
        Call(Operation("tfserving", "Classify"), body),
    ]
    assert KIND not in {kind_of(other) for other in others}


@pytest.mark.parametrize("data", [b"", b"\x0a", b"\x0a\x05ab", b"\x0a\xff\xff", b"{}", bytes(3)])
def test_any_bytes_have_a_kind(data: bytes) -> None:
    kind_of(Call(PREDICT, data))


def test_memory_is_bounded() -> None:
    durations = RequestDurations()
    for number in range(10_000):
        durations.learn(kind_of(Call(PREDICT, b"", model=str(number))), _answer(40), inline=False)
    assert len(durations._known) <= 4096

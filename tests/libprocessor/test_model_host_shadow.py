# SPDX-License-Identifier: Apache-2.0
"""Copies of requests for shadow versions: compared, never waited for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.host_clients import ONE, QUICK, X, scale_of
from helpers.hosts.state_directory import StateDirectory, entry, model_of
from helpers.models.idiom_models import export_function
from helpers.models.live_models import DIM, START, publish
from helpers.models.model_builders import linear_score
from helpers.models.slow_requests import slow_request
from helpers.system.process_state import threads_named
from helpers.system.waiting import wait_until

# Without CPUs of its own a shadow gets the idle time, of which there is none while other tests run.
CPU = str(max(os.sched_getaffinity(0)))


def shadowed(baseline: Path, shadow: Path, weight: int = 10_000, number: int = 2, **version: Any) -> dict[str, Any]:
    versions = {
        "1": {"path": str(baseline), "config": QUICK},
        str(number): {"path": str(shadow), "config": QUICK, "cpuset": CPU} | version,
    }
    return {"baseline": 1, "versions": versions, "shadow": [{"version": number, "weight": weight}]}


@pytest.fixture
def told(state: StateDirectory) -> Callable[[], dict[str, Any]]:
    """What shadow.json says of version 2."""

    def told() -> dict[str, Any]:
        path = state.path / "hosts" / "host-0" / "shadow.json"
        if not path.exists():
            return {}
        model: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"].get("m", {"versions": {}})
        return model["versions"].get("2", {})

    return told


def compared(host: processor.Host, outcome: str = "compared") -> int:
    """Return how many copies for version 2 were compared, or came to something else."""
    pattern = rf'recprocessor_shadow_total{{model="m",version="2",outcome="{outcome}"}} (\d+)'
    count = re.search(pattern, host.metrics())
    return int(count[1]) if count else 0


def test_mirrored_requests_to_a_version_that_is_not_ready_are_dropped(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], tmp_path: Path
) -> None:
    state.desire({"m": shadowed(scaled_models[1], tmp_path / "nothing")})

    def states() -> dict[str, str]:
        versions = host.status()["models"].get("m", {"versions": {}})["versions"]
        return {number: version["state"] for number, version in versions.items()}

    wait_until(lambda: states() == {"1": "ready", "2": "failed"}, "the baseline")
    for _ in range(20):
        assert scale_of(host.process("eas", ONE)) == 1.0
    wait_until(lambda: compared(host, "dropped") == 20, "copies to be dropped")
    assert compared(host, "failed") == 0


def test_scores_are_compared(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], told: Callable[[], dict[str, Any]]
) -> None:
    state.serve(host, {"m": shadowed(scaled_models[1], scaled_models[2])})
    rows = np.array([[1, 2, 3], [4, 5, 6], [0, 0, 1]], np.float32)
    for i in range(10):
        # One after another: a copy that meets the lane at work may be dropped.
        assert scale_of(host.process("eas", ONE)) == 1.0
        wait_until(lambda: compared(host) == 2 * i + 1, "the comparison")  # noqa: B023
        host.process("eas", encode({"x": rows}))
        wait_until(lambda: compared(host) == 2 * i + 2, "the comparison")  # noqa: B023
        host.process("eas", ONE, model_version=2)  # no answer of the baseline's
    with pytest.raises(processor.InvalidArgumentError):
        host.process("eas", b"\xff")
    wait_until(lambda: told().get("requests") == 20, "the comparison")
    seen = told()
    differences = np.concatenate([linear_score(X), linear_score(rows)])
    assert seen["scores"] == 40
    assert seen["baseline"] == 1
    assert seen["mean_difference"] == pytest.approx(differences.mean(), rel=1e-5)
    assert seen["mean_absolute_difference"] == pytest.approx(differences.mean(), rel=1e-5)
    assert seen["max_absolute_difference"] == pytest.approx(differences.max(), rel=1e-5)
    assert seen["rank_correlation"] == pytest.approx(1.0)
    assert seen["rank_correlation_requests"] == 10
    assert (seen["nan"], seen["infinite"], seen["errors"], seen["mismatches"], seen["dropped"]) == (0, 0, 0, 0, 0)
    assert 'recprocessor_shadow_total{model="m",version="2",outcome="compared"} 20' in host.metrics()


def test_a_share_of_the_requests_is_mirrored(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": shadowed(scaled_models[1], scaled_models[2], weight=1000)})
    for _ in range(200):
        host.process("eas", ONE)
    wait_until(lambda: compared(host) + compared(host, "dropped") >= 15, "about twenty copies")
    assert compared(host) > 0
    assert compared(host) + compared(host, "dropped") <= 25


def test_a_shadow_that_becomes_the_baseline_has_ordinary_threads(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    model = shadowed(scaled_models[1], scaled_models[2])
    state.serve(host, {"m": model})
    host.process("eas", ONE)
    wait_until(lambda: compared(host) == 1, "the comparison")
    # Its threads began with the first copy, asked for by a thread with the idle time alone.
    assert {os.sched_getscheduler(thread) for thread in threads_named("session-")} == {os.SCHED_OTHER}
    state.serve(host, {"m": {"baseline": 2, "versions": model["versions"]}})
    assert scale_of(host.process("eas", ONE)) == 2.0


def test_another_baseline_restarts_the_comparison(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], told: Callable[[], dict[str, Any]]
) -> None:
    model = shadowed(scaled_models[1], scaled_models[2])
    state.serve(host, {"m": model})
    host.process("eas", ONE)
    wait_until(lambda: told().get("requests") == 1, "the comparison")
    model["versions"]["3"] = {"path": str(scaled_models[3]), "config": QUICK}
    state.serve(host, {"m": model | {"baseline": 3}})
    wait_until(lambda: told().get("baseline") == 3, "the new baseline")
    assert told()["requests"] == 0
    state.serve(host, {"m": model_of(scaled_models[1])})
    assert "recprocessor_shadow_total{" not in host.metrics()


def test_live_requests_never_wait_for_mirrored_ones(
    host: processor.Host, state: StateDirectory, slow_model: Path, told: Callable[[], dict[str, Any]]
) -> None:
    """The shadow takes ten times as long, and its queue overflows."""
    state.serve(host, {"m": shadowed(slow_model, slow_model)})
    request = slow_request(1)

    def seconds(number: int) -> float:
        begin = time.monotonic()
        for _ in range(number):
            host.process("eas", request)
        return time.monotonic() - begin

    seconds(5)
    # More than the queue holds, faster than a thread that gives way can run them.
    seconds(400)
    wait_until(lambda: told().get("requests", 0) > 0, "a comparison")
    began = time.monotonic()
    state.serve(host, {"m": model_of(slow_model, config=QUICK)})
    assert time.monotonic() - began < 10, "what waits is dropped with the shadow"


def test_failures_of_the_shadow_do_not_reach_clients(
    host: processor.Host,
    state: StateDirectory,
    scaled_models: dict[int, Path],
    string_model: Path,
    told: Callable[[], dict[str, Any]],
) -> None:
    state.serve(host, {"m": shadowed(scaled_models[1], string_model)})
    for _ in range(5):
        assert scale_of(host.process("eas", ONE)) == 1.0
    wait_until(lambda: told().get("errors") == 5, "the failures")
    assert told()["mean_difference"] is None
    assert 'recprocessor_shadow_total{model="m",version="2",outcome="failed"} 5' in host.metrics()


def export_counting(folder: Path) -> Path:
    """Write a model with the input `a` and the output `rows` of `live_models`, all 0, after `a[0]` loops."""
    import tensorflow as tf

    def serve(a: tf.Tensor) -> dict[str, tf.Tensor]:
        loops = tf.while_loop(lambda i: i < a[0], lambda i: (i + 1,), (tf.constant(0, tf.int64),))[0]
        return {"rows": tf.zeros([tf.size(a), DIM]) + 0.0 * tf.cast(loops, tf.float32)}

    return export_function(folder, serve, [tf.TensorSpec([None], tf.int64, name="a")])


def test_scores_of_an_epoch_that_the_baseline_has_left_are_not_compared(
    host: processor.Host, state: StateDirectory, live_artifact: Path, tmp_path: Path, told: Callable[[], dict[str, Any]]
) -> None:
    """Otherwise the guard would judge an epoch by mirrored requests that have waited since the one before."""
    writer = TimelineWriter(tmp_path / "timeline", START, "a test")
    model = shadowed(live_artifact, export_counting(tmp_path / "counting"))
    model["versions"]["1"]["follow"] = str(writer.folder)
    state.serve(host, {"m": model})
    request = encode({"a": np.arange(8, dtype=np.int64)})

    def epoch() -> float:
        return float(decode(host.process("eas", request).data)["rows"][0, 0])

    async def ask() -> int:
        endless = encode({"a": np.array([2**62], np.int64)})
        # While the shadow's only thread is busy, what is mirrored waits.
        busy = asyncio.ensure_future(host.aprocess("eas", endless, model_version=2))
        while entry(host, "m", 2)["in_flight"] == 0:
            await asyncio.sleep(0.01)
        assert [epoch() for _ in range(10)] == [0.0] * 10
        publish(writer)
        mirrored = 11
        while epoch() == 0.0:
            await asyncio.sleep(0.01)
            mirrored += 1
        busy.cancel()
        return mirrored

    mirrored = asyncio.run(ask())
    wait_until(lambda: compared(host) + compared(host, "dropped") == mirrored, "the end of the queue")
    # One copy may have been taken from the queue before the epoch changed.
    assert compared(host) <= 2
    count = compared(host)
    wait_until(lambda: epoch() == 1.0 and compared(host) >= count + 10, "comparisons of the present epoch")
    wait_until(lambda: told().get("requests", 0) > 0, "the report")
    assert told()["errors"] == 0

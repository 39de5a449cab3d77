# SPDX-License-Identifier: Apache-2.0
"""Work stops when nobody waits for it: at its deadline, when its client disconnects, when its version is unloaded."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from helpers.hosts.host_requests import in_flight, ranking_body
from helpers.hosts.served_hosts import ServedHost, model, version
from helpers.hosts.tfserving_messages import tfserving_request
from helpers.models.slow_requests import ENDLESS, slow_request
from helpers.system.waiting import wait_until

PREDICT = "/tensorflow.serving.PredictionService/Predict"


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_idle(host: ServedHost) -> bool:
    """Return whether a host uses almost no CPU time for a moment."""
    before = cpu_seconds(host.pid)
    time.sleep(0.5)
    return cpu_seconds(host.pid) - before < 0.15


def endless_message() -> bytes:
    """Return a request (TensorFlow Serving) that would run for days."""
    return tfserving_request({"x": np.ones(1, np.float32), "loops": np.int32(ENDLESS)}, name="slow")


def quickest(attempt: Callable[[], float]) -> float:
    """Return the shortest of several measurements: a busy machine makes them longer, never shorter."""
    times = []
    for _ in range(60):
        times.append(attempt())
        if times[-1] < 0.25:
            break
    return min(times)


@pytest.fixture
def slow_host(start_host, slow_model: Path) -> Iterator[ServedHost]:
    """A host with one model, which runs one request at a time."""
    with start_host({"slow": model(1, {1: version(slow_model, config={"worker_threads": 1})})}) as host:
        url = f"http://{host.rest}/api/predict/slow"
        # The host has learnt that such requests are short, and would run the next one on any thread.
        for _ in range(50):
            assert httpx.post(url, content=slow_request(1), timeout=60).status_code == 200
        yield host


def ask_quickly(host: ServedHost) -> None:
    """Send the same session a request that takes a millisecond, and would otherwise wait for days."""
    answer = httpx.post(f"http://{host.rest}/api/predict/slow", content=slow_request(1), timeout=60)
    assert answer.status_code == 200


def test_http_answers_at_the_deadline_and_the_session_is_free(slow_host: ServedHost) -> None:
    # A client of its own: to make one takes longer than the host has.
    with httpx.Client(base_url=f"http://{slow_host.rest}", timeout=60) as client:
        assert client.get("/healthz").status_code == 200

        def attempt() -> float:
            began = time.monotonic()
            answer = client.post("/api/predict/slow", content=slow_request(ENDLESS), headers={"x-timeout-ms": "200"})
            taken = time.monotonic() - began
            assert answer.status_code == 504, answer.text
            assert "deadline" in answer.text
            assert taken >= 0.19
            ask_quickly(slow_host)
            return taken

        assert quickest(attempt) < 0.25
    wait_until(lambda: is_idle(slow_host))


def test_grpc_answers_at_the_deadline_and_the_session_is_free(slow_host: ServedHost) -> None:
    with grpc.insecure_channel(slow_host.grpc) as channel:
        predict = channel.unary_unary(PREDICT)

        def attempt() -> float:
            began = time.monotonic()
            with pytest.raises(grpc.RpcError) as error:
                predict(endless_message(), timeout=0.2)
            taken = time.monotonic() - began
            assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            ask_quickly(slow_host)
            return taken

        assert quickest(attempt) < 0.25
    wait_until(lambda: is_idle(slow_host))


def test_work_ends_with_its_grpc_call(slow_host: ServedHost) -> None:
    with grpc.insecure_channel(slow_host.grpc) as channel:
        call = channel.unary_unary(PREDICT).future(endless_message(), timeout=600)
        wait_until(lambda: in_flight(slow_host) == 1)
        wait_until(lambda: not is_idle(slow_host), "a busy host")
        call.cancel()
        wait_until(lambda: in_flight(slow_host) == 0)
        ask_quickly(slow_host)
    wait_until(lambda: is_idle(slow_host))


def test_work_ends_with_its_connection(slow_host: ServedHost) -> None:
    body = slow_request(ENDLESS)
    address, _, port = slow_host.rest.rpartition(":")
    with socket.create_connection((address, int(port))) as connection:
        head = f"POST /api/predict/slow HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: in_flight(slow_host) == 1)
        wait_until(lambda: not is_idle(slow_host), "a busy host")
    wait_until(lambda: in_flight(slow_host) == 0)
    ask_quickly(slow_host)
    wait_until(lambda: is_idle(slow_host))


@pytest.mark.parametrize("batching", [None, {"mode": "zero_wait"}])
def test_work_of_an_undeployed_version_ends(start_host, slow_model: Path, batching: Any) -> None:
    more = {} if batching is None else {"batching": batching}
    models = {"slow": model(1, {1: version(slow_model, config={"drain_seconds": 0.5}, **more)})}
    with start_host(models) as host, grpc.insecure_channel(host.grpc) as channel:
        call = channel.unary_unary(PREDICT).future(endless_message(), timeout=600)
        wait_until(lambda: in_flight(host) == 1)
        host.desire({})
        error = call.exception(60)
        assert isinstance(error, grpc.RpcError)
        assert error.code() == grpc.StatusCode.CANCELLED
        assert "drain_seconds" in error.details()
        host.wait_for(lambda state: "slow" not in state["models"])
        wait_until(lambda: is_idle(host))


def test_a_slow_request_does_not_delay_quick_ones(start_host, slow_model: Path) -> None:
    with start_host({"slow": model(1, {1: version(slow_model)})}) as host, httpx.Client(timeout=60) as client:
        url = f"http://{host.rest}/api/predict/slow"
        with grpc.insecure_channel(host.grpc) as channel:
            # More of them than there are CPUs, and than the session has threads for ops that need not wait.
            calls = [
                channel.unary_unary(PREDICT).future(endless_message(), timeout=600)
                for _ in range(len(os.sched_getaffinity(0)) + 6)
            ]
            wait_until(lambda: in_flight(host) == len(calls))
            times = []
            for _ in range(10):
                began = time.monotonic()
                assert client.post(url, content=slow_request(1)).status_code == 200
                times.append(time.monotonic() - began)
            assert sorted(times)[5] < 5
            for call in calls:
                call.cancel()
        wait_until(lambda: is_idle(host))


def test_slow_requests_of_one_model_do_not_delay_another(start_host, served_models, slow_model: Path) -> None:
    models = {"ranking": served_models["ranking"], "slow": model(1, {1: version(slow_model)})}
    with start_host(models) as host, grpc.insecure_channel(host.grpc) as channel, httpx.Client(timeout=60) as client:
        calls = [channel.unary_unary(PREDICT).future(endless_message(), timeout=600) for _ in range(20)]
        wait_until(lambda: in_flight(host) == len(calls))
        times = []
        for _ in range(10):
            began = time.monotonic()
            assert client.post(f"http://{host.rest}/api/predict/ranking", content=ranking_body()).status_code == 200
            times.append(time.monotonic() - began)
        assert sorted(times)[5] < 5
        for call in calls:
            call.cancel()

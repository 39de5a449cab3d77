# SPDX-License-Identifier: Apache-2.0
"""Requests that a host writes down: which, whole, for whoever warms up or verifies with them, and at nobody's cost."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

import processor
from graph_tools.graph import Output
from graph_tools.model import Endpoint, Signature
from graph_tools.verification.requests import read_requests
from helpers.hosts.contract_messages import encode
from helpers.hosts.host_clients import ONE, QUICK, scale_of
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.hosts.tfserving_messages import tfserving_request
from helpers.system.process_state import threads_named
from helpers.system.waiting import wait_until

SIGNATURES = {"serving_default": Signature({"x": Endpoint(Output("x"), tf.float32, tf.TensorShape([None, 3]))}, {})}


@pytest.fixture
def host(state: StateDirectory) -> Iterator[processor.Host]:
    # With CPUs of its own, versions are loaded as fast on a busy machine.
    with processor.Host(state.path, maintenance_cpus="0") as host:
        yield host


def logged(path: Path, sample: int = 10_000, **settings: Any) -> dict[str, Any]:
    return model_of(path, config=QUICK) | {"request_log": {"sample": sample} | settings}


def files(state: StateDirectory) -> list[Path]:
    return sorted((state.path / "hosts" / "host-0" / "requests" / "m").glob("*"))


def logs(state: StateDirectory) -> list[prediction_log_pb2.PredictionLog]:
    """Read what was written with TensorFlow and TensorFlow Serving's messages."""
    records = tf.data.TFRecordDataset([str(path) for path in files(state)]).as_numpy_iterator() if files(state) else []
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def row(number: float) -> np.ndarray:
    return np.full((1, 3), number, np.float32)


def first(log: prediction_log_pb2.PredictionLog) -> float:
    return float(tf.make_ndarray(log.predict_log.request.inputs["x"])[0, 0])


def counts(host: processor.Host) -> dict[str, int]:
    found = re.findall(r'^recprocessor_request_log_total{model="m",outcome="(\w+)"} (\d+)$', host.metrics(), re.M)
    return {outcome: int(number) for outcome, number in found}


def wait_for_written(host: processor.Host, number: int) -> None:
    wait_until(lambda: counts(host).get("written") == number, f"{number} written requests")


def test_all_requests_are_logged_with_their_version(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    versions = {str(scale): {"path": str(scaled_models[scale]), "config": QUICK} for scale in (1, 2)}
    state.serve(host, {"m": {"baseline": 1, "versions": versions, "request_log": {"sample": 10_000}}})
    sent = [tfserving_request({"x": row(number)}, name="m", version=1 + number % 2) for number in range(10)]
    for request in sent:
        host.process("tfserving", request)
    with pytest.raises(processor.InvalidArgumentError):
        host.process("tfserving", b"\xff")
    with pytest.raises(processor.InvalidArgumentError):
        host.process("eas", encode({"x": np.zeros((1, 3), np.int32)}))
    wait_for_written(host, 10)
    found = logs(state)
    assert [log.predict_log.request.SerializeToString(deterministic=True) for log in found] == [
        type(found[0].predict_log.request).FromString(request).SerializeToString(deterministic=True) for request in sent
    ]
    for number, log in enumerate(found):
        spec = log.log_metadata.model_spec
        assert (spec.name, spec.version.value) == ("m", 1 + number % 2)
        assert log.log_metadata.sampling_config.sampling_rate == 1.0
        assert not log.predict_log.HasField("response")
    (file,) = files(state)
    assert re.fullmatch(r"\d{16}\.tfrecord", file.name)
    assert file.stat().st_mode & 0o777 & ~0o640 == 0
    assert file.parent.stat().st_mode & 0o777 & ~0o750 == 0
    stats_file = state.path / "hosts" / "host-0" / "stats.json"
    told = {"written": 10, "dropped": 0, "unsupported": 0}
    wait_until(lambda: json.loads(stats_file.read_bytes())["models"].get("m", {}).get("request_log") == told, "stats")


def test_other_protocols_are_written_as_predict_requests(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": logged(scaled_models[1])})
    body = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [2.0, 2.0, 2.0]}
    host.process("eas", encode({"x": row(1)}))
    host.process("kserve_json", json.dumps({"inputs": [body]}).encode(), model_name="m")
    host.process("tfserving_json", json.dumps({"instances": [[3.0, 3.0, 3.0]]}).encode(), model_name="m")
    host.process("kserve_json", b"", method="ready", model_name="m")
    host.process("eas", b"")  # asks for the signature
    wait_for_written(host, 3)
    found = logs(state)
    assert [first(log) for log in found] == [1, 2, 3]
    assert {log.predict_log.request.model_spec.name for log in found} == {"m"}
    assert {tuple(log.predict_log.request.output_filter) for log in found} == {()}
    assert counts(host) == {"written": 3, "dropped": 0, "unsupported": 0}


def test_files_warm_up_a_version_and_are_verified_with(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": logged(scaled_models[1])})
    for number in range(5):
        host.process("eas", encode({"x": row(number)}))
        host.process("tfserving", tfserving_request({"x": row(number)}))
    wait_for_written(host, 10)
    (file,) = files(state)
    asked = read_requests(file, SIGNATURES)
    assert [float(request.inputs["x"][0, 0]) for request in asked] == [number // 2 for number in range(10)]
    with processor.Model(scaled_models[2], QUICK | {"warmup_file_name": str(file)}) as other:
        assert other.info["warmup"] == "file: 10 records on each session"
    state.serve(host, {"m": model_of(scaled_models[2], 2, config=QUICK, warmup_file=str(file))})
    assert scale_of(host.process("eas", ONE)) == 2.0


def test_changed_settings_apply_at_once(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    def written_of(requests: int) -> int:
        before = len(logs(state))
        for _ in range(requests):
            host.process("eas", ONE)
        state.serve(host, {"m": logged(scaled_models[1])})
        # Those before are written once this one is.
        host.process("eas", encode({"x": row(1000 + before)}))
        wait_until(lambda: 1000 + before in {first(log) for log in logs(state)}, "the last one")
        return len(logs(state)) - before - 1

    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK)})
    assert counts(host) == {}
    assert not threads_named("request-log")
    assert written_of(50) == 0
    assert written_of(50) == 50
    state.serve(host, {"m": logged(scaled_models[1], 0)})
    assert written_of(50) == 0
    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK)})
    assert written_of(50) == 0
    state.serve(host, {"m": logged(scaled_models[1], 1000)})
    assert 20 < written_of(500) < 90
    rates = Counter(log.log_metadata.sampling_config.sampling_rate for log in logs(state))
    assert set(rates) == {1.0, 0.1}


def test_size_and_number_of_files_are_bounded(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": logged(scaled_models[1], max_bytes=4096, max_files=3)})
    for number in range(300):
        host.process("eas", encode({"x": row(number)}))
    wait_for_written(host, 300)
    found = files(state)
    assert len(found) == 3
    assert all(file.stat().st_size <= 4096 for file in found)
    assert [first(log) for log in logs(state)][-1] == 299


def test_waiting_records_are_written_at_the_end_and_the_next_host_begins_a_file(
    state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    for begun in (1, 2):
        with processor.Host(state.path, maintenance_cpus="0") as host:
            state.serve(host, {"m": logged(scaled_models[1])})
            for number in range(100):
                host.process("eas", encode({"x": row(number)}))
            if begun == 1:
                host.drain()
                assert counts(host)["written"] == 100
        assert not threads_named("request-log")
        assert len(files(state)) == begun
        assert [first(log) for log in logs(state)] == [*range(100)] * begun


def test_removed_files_do_not_disturb_the_log(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": logged(scaled_models[1])})
    host.process("eas", ONE)
    wait_for_written(host, 1)
    shutil.rmtree(state.path / "hosts" / "host-0" / "requests")
    for number in range(10):
        host.process("eas", encode({"x": row(number)}))
    wait_for_written(host, 11)
    assert [first(log) for log in logs(state)] == list(range(10))


def test_requests_are_answered_if_the_folder_cannot_be_made(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    blocker = state.path / "hosts" / "host-0" / "requests"
    blocker.write_text("")
    state.serve(host, {"m": logged(scaled_models[1])})
    for _ in range(20):
        assert scale_of(host.process("eas", ONE)) == 1.0
    wait_until(lambda: counts(host)["dropped"] == 20, "what is dropped")
    blocker.unlink()

    def is_written() -> bool:
        host.process("eas", ONE)
        return counts(host)["written"] > 0

    wait_until(is_written, "another attempt")


def test_many_threads_lose_no_answer_and_no_record(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": logged(scaled_models[1])})
    failures: list[Exception] = []

    def send(thread: int) -> None:
        try:
            for number in range(100):
                answer = host.process("eas", encode({"x": row(100 * thread + number)}))
                assert answer.model_version == 1
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wait_until(lambda: sum(counts(host).values()) == 1600, "all of them")
    found = [first(log) for log in logs(state)]
    assert len(found) == len(set(found)) == counts(host)["written"] > 0

# SPDX-License-Identifier: Apache-2.0
"""Triton's extensions of the Open Inference Protocol v2: configuration, statistics, index, raw requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from helpers.hosts.served_hosts import ServedHost
from helpers.models.model_builders import linear_score

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


class Triton:
    """One of the two clients, with answers of both as the same JSON."""

    def __init__(self, kind: str, host: ServedHost) -> None:
        self.module = getattr(tritonclient, kind)
        self.client = self.module.InferenceServerClient(host.grpc if kind == "grpc" else host.rest)
        self._as_json = {"as_json": True} if kind == "grpc" else {}

    def config(self, name: str, version: str = "") -> dict[str, Any]:
        found: dict[str, Any] = self.client.get_model_config(name, version, **self._as_json)
        return found.get("config", found)

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        found: dict[str, Any] = self.client.get_inference_statistics(name, version, **self._as_json)
        listed: list[dict[str, Any]] = found["model_stats"]
        return listed

    def index(self) -> list[dict[str, Any]]:
        found = self.client.get_model_repository_index(**self._as_json)
        listed: list[dict[str, Any]] = found["models"] if isinstance(found, dict) else found
        return listed

    def input(self, value: np.ndarray = X) -> Any:
        tensor = self.module.InferInput("x", list(value.shape), "FP32")
        tensor.set_data_from_numpy(value)
        return tensor


@pytest.fixture(scope="module", params=["grpc", "http"])
def triton(request: pytest.FixtureRequest, host: ServedHost) -> Iterator[Triton]:
    opened = Triton(request.param, host)
    yield opened
    opened.client.close()


def _tensors(listed: list[dict[str, Any]]) -> list[tuple[str, str, list[int]]]:
    return [(tensor["name"], tensor["data_type"], [int(dim) for dim in tensor.get("dims", [])]) for tensor in listed]


def test_model_config_describes_the_model(triton: Triton) -> None:
    config = triton.config("ranking")
    assert (config["name"], config["platform"], config["backend"]) == ("ranking", "tensorflow_savedmodel", "tensorflow")
    assert _tensors(config["input"]) == [("x", "TYPE_FP32", [-1, 3])]
    assert _tensors(config["output"]) == [("y", "TYPE_FP32", [-1, 1])]
    assert int(config.get("max_batch_size", 0)) == 0
    assert "dynamic_batching" not in config
    assert [int(number) for number in config["version_policy"]["specific"]["versions"]] == [1, 2]
    (group,) = config["instance_group"]
    assert (group["kind"], int(group["count"]) > 0) == ("KIND_CPU", True)


def test_model_config_names_string_inputs(triton: Triton) -> None:
    assert [dtype for _, dtype, _ in _tensors(triton.config("text")["input"])] == ["TYPE_STRING", "TYPE_FP32"]


def test_model_config_with_batching_omits_the_rows(triton: Triton) -> None:
    """With batching, shapes do not include the rows, as in Triton."""
    config = triton.config("batched")
    assert int(config["max_batch_size"]) == 64
    assert _tensors(config["input"]) == [("x", "TYPE_FP32", [3])]
    assert int(config["dynamic_batching"]["max_queue_delay_microseconds"]) == 500


@pytest.mark.parametrize(("name", "version"), [("absent", ""), ("ranking", "9")])
def test_config_and_statistics_of_unknown_models_are_refused(triton: Triton, name: str, version: str) -> None:
    with pytest.raises(InferenceServerException, match=name):
        triton.config(name, version)
    with pytest.raises(InferenceServerException, match=name):
        triton.statistics(name, version)


def test_statistics_count_requests_rows_and_time(triton: Triton) -> None:
    def counts() -> dict[str, int]:
        (statistics,) = triton.statistics("ranking", "2")
        assert (statistics["name"], statistics["version"]) == ("ranking", "2")
        inference = statistics["inference_stats"]
        found = {key: int(statistics.get(key, 0)) for key in ("inference_count", "execution_count", "last_inference")}
        for key in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
            found |= {
                f"{key}_count": int(inference[key].get("count", 0)),
                f"{key}_ns": int(inference[key].get("ns", 0)),
            }
        return found

    before, began = counts(), time.time()
    for _ in range(3):
        triton.client.infer("ranking", [triton.input()], model_version="2")
    with pytest.raises(InferenceServerException):
        triton.client.infer("ranking", [triton.input(X[:, :2])], model_version="2")
    after = counts()
    grown = {key: after[key] - before[key] for key in after}
    assert (grown["success_count"], grown["fail_count"]) == (3, 1)
    assert (grown["inference_count"], grown["execution_count"]) == (6, 3), "rows, and runs"
    for key in ("success", "fail", "compute_input", "compute_infer", "compute_output"):
        assert grown[f"{key}_ns"] > 0, key
    parts = sum(grown[f"{key}_ns"] for key in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert parts <= grown["success_ns"] < (time.time() - began) * 1e9
    assert abs(after["last_inference"] / 1000 - time.time()) < 60


def test_statistics_contain_all_models(triton: Triton) -> None:
    named = {(statistic["name"], statistic["version"]) for statistic in triton.statistics()}
    assert named >= {("ranking", "1"), ("ranking", "2"), ("text", "3"), ("batched", "1")}
    assert {statistics["version"] for statistics in triton.statistics("ranking")} == {"1", "2"}


def test_statistics_of_a_label_are_those_of_its_version(http: httpx.Client) -> None:
    (statistics,) = http.get("/v2/models/ranking/labels/canary/stats").json()["model_stats"]
    assert statistics["version"] == "2"
    assert http.get("/v2/models/ranking/labels/canary/config").json()["name"] == "ranking"


def test_repository_index_lists_all_versions(triton: Triton) -> None:
    index = {(entry["name"], entry["version"]): entry for entry in triton.index()}
    assert {("ranking", "1"), ("ranking", "2"), ("text", "3")} <= index.keys()
    assert index["ranking", "2"]["state"] == "READY"


@pytest.mark.parametrize(("body", "status"), [("", 200), ('{"ready": true}', 200), ('{"ready": 7}', 400), ("[]", 400)])
def test_body_of_the_index_is_checked(http: httpx.Client, body: str, status: int) -> None:
    answer = http.post("/v2/repository/index", content=body)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert {entry["name"] for entry in answer.json()} >= {"ranking", "text"}


def test_classification_is_refused(triton: Triton) -> None:
    """Clients would misread scores as classes."""
    output = triton.module.InferRequestedOutput("y", class_count=2)
    with pytest.raises(InferenceServerException, match="classification"):
        triton.client.infer("ranking", [triton.input()], outputs=[output])


def test_shared_memory_is_refused(triton: Triton) -> None:
    tensor = triton.module.InferInput("x", [2, 3], "FP32")
    tensor.set_shared_memory("region", 24)
    with pytest.raises(InferenceServerException, match="shared memory"):
        triton.client.infer("ranking", [tensor])
    output = triton.module.InferRequestedOutput("y")
    output.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="shared memory"):
        triton.client.infer("ranking", [triton.input()], outputs=[output])


def _raw(http: httpx.Client, model: str, body: bytes) -> httpx.Response:
    return http.post(f"/v2/models/{model}/infer", content=body, headers={"inference-header-content-length": "0"})


def test_raw_requests_are_answered(http: httpx.Client) -> None:
    answer = _raw(http, "ranking", X.tobytes())
    assert answer.status_code == 200, answer.text
    length = int(answer.headers["inference-header-content-length"])
    body = np.frombuffer(answer.content[length:], np.float32).reshape(2, 1)
    assert np.allclose(body, linear_score(X))


def test_invalid_raw_requests_are_refused(http: httpx.Client) -> None:
    for body in (X.tobytes()[:-1], b"x"):
        answer = _raw(http, "ranking", body)
        assert answer.status_code == 400, answer.text
        assert "'x'" in answer.json()["error"]
    two = _raw(http, "text", b"item")
    assert two.status_code == 400
    assert "expected a model with one" in two.json()["error"]

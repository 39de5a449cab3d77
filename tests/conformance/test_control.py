# SPDX-License-Identifier: Apache-2.0
"""Requests that a host forwards to a real proxy: reloading a configuration, loading and unloading models."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
import tritonclient.grpc
import tritonclient.http
from google.protobuf.wrappers_pb2 import Int64Value
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tritonclient.utils import InferenceServerException

from helpers.hosts.served_hosts import ROOT, program
from helpers.models import model_builders
from helpers.proxies.proxy_runs import ProxyProcess, wait_for

X = np.array([[1, 2, 3]], np.float32)
AVAILABLE, END = get_model_status_pb2.ModelVersionStatus.AVAILABLE, get_model_status_pb2.ModelVersionStatus.END


class Served:
    """A proxy that starts no host, and one of the kind under test on its state directory.

    Attributes
    ----------
    models : Path
        The proxy's model root.
    """

    def __init__(self, kind: str, folder: Path, *arguments: str) -> None:
        self.models = folder / "models"
        self.models.mkdir()
        self.proxy = ProxyProcess(folder, "--model-root", str(self.models), host="none")
        self._command = [*program(kind), "--state-dir", str(self.proxy.state_dir), "--host-id", "host-0"]
        self._command += ["--grpc-port", "0", "--rest-port", "0", *arguments]
        self._log = folder / "host.log"

    def __enter__(self) -> Served:
        self.proxy.start()
        token = self.proxy.state_dir / "admin.token"
        command = [*self._command, "--admin", self.proxy.url, "--token-file", str(token)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        endpoints = wait_for(self._endpoints, 120, "a host that listens")
        self.grpc, self.rest = endpoints["grpc"], endpoints["rest"]
        self.channel = grpc.insecure_channel(self.grpc)
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
        self.proxy.stop()

    def _endpoints(self) -> dict[str, str]:
        assert self.process.poll() is None, self._log.read_text()[-2000:]
        try:
            text = (self.proxy.state_dir / "hosts" / "host-0" / "actual.json").read_text()
        except FileNotFoundError:
            return {}
        found: dict[str, str] = json.loads(text)["endpoints"]
        return found if {"grpc", "rest"} <= found.keys() else {}

    def build(self, name: str, number: int) -> Path:
        """Write a version that multiplies by its number; it appears in its directory at once, as a whole."""
        draft = model_builders.build_linear(self.models / f".{name}-{number}", float(number))
        place = self.models / name / str(number)
        place.parent.mkdir(exist_ok=True)
        return draft.rename(place)

    def reload(self, *configs: dict[str, Any], timeout: float = 60.0) -> model_management_pb2.ReloadConfigResponse:
        """Send a reload request; `labels` and `versions` are fields of a ModelConfig."""
        request = model_management_pb2.ReloadConfigRequest()
        request.config.model_config_list.SetInParent()
        for config in configs:
            entry = request.config.model_config_list.config.add(name=config["name"], model_platform="tensorflow")
            entry.base_path = config.get("base_path", str(self.models / config["name"]))
            for label, number in config.get("labels", {}).items():
                entry.version_labels[label] = number
            entry.model_version_policy.specific.versions.extend(config.get("versions", ()))
            if not config.get("versions"):
                entry.ClearField("model_version_policy")
        stub = model_service_pb2_grpc.ModelServiceStub(self.channel)
        return stub.HandleReloadConfigRequest(request, timeout=timeout)

    def score(self, name: str, **spec: object) -> float:
        """Request one score; return its ratio to that of version 1."""
        request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name=name, **spec))
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
        answer = prediction_service_pb2_grpc.PredictionServiceStub(self.channel).Predict(request, timeout=60)
        return float((tf.make_ndarray(answer.outputs["y"]) / model_builders.linear_score(X)).item())

    def status(self, name: str) -> list[tuple[int, int, int, str]]:
        """Return number, state, code and message of each version, in their order."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name=name))
        answer = model_service_pb2_grpc.ModelServiceStub(self.channel).GetModelStatus(request, timeout=60)
        return [
            (version.version, version.state, version.status.error_code, version.status.error_message)
            for version in answer.model_version_status
        ]


@pytest.fixture(scope="module")
def served(host_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("control")
    with Served(host_kind, folder, "--allow-reload-rpc", "--allow-model-control") as running:
        yield running


def test_reload_returns_when_new_models_are_available(served: Served) -> None:
    served.build("first", 1)
    assert served.reload({"name": "first"}).status.error_code == 0
    # At once, without another try.
    assert served.score("first") == pytest.approx(1)
    served.build("second", 2)
    served.reload({"name": "first"}, {"name": "second"})
    assert (served.score("first"), served.score("second")) == (pytest.approx(1), pytest.approx(2))
    assert served.status("second") == [(2, AVAILABLE, 0, "")]
    served.reload()
    with pytest.raises(grpc.RpcError) as caught:
        wait_for(lambda: served.score("first") == 0)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_reload_moves_labels(served: Served) -> None:
    for number in (1, 2):
        served.build("labeled", number)
    served.reload({"name": "labeled", "versions": [1, 2], "labels": {"stable": 1, "canary": 2}})
    assert served.score("labeled", version_label="stable") == pytest.approx(1)
    assert served.score("labeled", version_label="canary") == pytest.approx(2)
    served.reload({"name": "labeled", "versions": [1, 2], "labels": {"stable": 2}})
    assert served.score("labeled", version_label="stable") == pytest.approx(2)


def test_label_of_an_absent_version_is_refused(served: Served) -> None:
    served.build("absent-label", 1)
    with pytest.raises(grpc.RpcError) as caught:
        served.reload({"name": "absent-label", "labels": {"stable": 7}})
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert all(word in caught.value.details() for word in ("absent-label", "stable", "7"))
    # The model itself is served, as TensorFlow Serving has it.
    assert served.score("absent-label") == pytest.approx(1)


def test_reload_of_a_broken_model_reports_an_error(served: Served) -> None:
    place = served.models / "broken" / "3"
    place.mkdir(parents=True)
    (place / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(grpc.RpcError) as caught:
        served.reload({"name": "broken"})
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert "broken" in caught.value.details()


def test_reload_of_an_empty_directory_reports_an_error(served: Served) -> None:
    (served.models / "empty").mkdir()
    with pytest.raises(grpc.RpcError) as caught:
        served.reload({"name": "empty"})
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert "empty" in caught.value.details()


def test_status_keeps_versions_that_failed(served: Served) -> None:
    served.build("halves", 1)
    served.reload({"name": "halves"})
    place = served.build("halves", 2)
    (place / "saved_model.pb").write_bytes(b"no graph")
    wait_for(lambda: len(served.status("halves")) == 2, 60)
    (number, state, code, message), first = wait_for(
        lambda: found if (found := served.status("halves"))[0][1] == END else None, 60
    )
    assert (number, state, first[:2]) == (2, END, (1, AVAILABLE))
    assert code != 0
    assert f"{place}: a graph that does not parse" in message
    assert served.score("halves") == pytest.approx(1)
    rest = httpx.get(f"http://{served.rest}/v1/models/halves", timeout=60).json()["model_version_status"]
    assert [(version["version"], version["state"]) for version in rest] == [("2", "END"), ("1", "AVAILABLE")]
    assert rest[0]["status"]["error_code"] == "INVALID_ARGUMENT"


def test_status_of_a_model_that_cannot_be_loaded_shows_the_reason(served: Served) -> None:
    """Clients see the reason, as with TensorFlow Serving, and not only that there is no such model."""
    place = served.models / "hopeless" / "7"
    place.mkdir(parents=True)
    (place / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(grpc.RpcError):
        served.reload({"name": "hopeless"})
    ((number, state, code, message),) = wait_for(lambda: _status_or_none(served, "hopeless"), 60)
    assert (number, state) == (7, END)
    assert code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "a graph that does not parse" in message
    with pytest.raises(grpc.RpcError) as caught:
        served.score("hopeless")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    index = httpx.post(f"http://{served.rest}/v2/repository/index", timeout=60).json()
    (entry,) = (model for model in index if model["name"] == "hopeless")
    assert (entry["version"], entry["state"], entry["reason"]) == ("7", "UNAVAILABLE", message)
    # Once it is right, it is served, and the reason is gone.
    (place / "saved_model.pb").unlink()
    place.rmdir()
    served.build("hopeless", 8)
    wait_for(lambda: (8, AVAILABLE) in [status[:2] for status in served.status("hopeless")], 60)
    assert served.score("hopeless") == pytest.approx(8)


@pytest.fixture(params=["grpc", "http"])
def triton(request: pytest.FixtureRequest, served: Served) -> Iterator[Any]:
    module = getattr(tritonclient, request.param)
    client = module.InferenceServerClient(
        served.grpc if request.param == "grpc" else served.rest,
        **({} if request.param == "grpc" else {"network_timeout": 60.0}),
    )
    yield client
    client.close()


def test_loaded_models_are_served_until_they_are_unloaded(
    served: Served, triton: Any, request: pytest.FixtureRequest
) -> None:
    name = f"loaded-{request.node.callspec.params['triton']}"
    for number in (1, 2):
        served.build(name, number)
    triton.load_model(name)
    assert triton.is_model_ready(name)
    assert served.score(name) == pytest.approx(2)
    triton.load_model(name)
    for _ in range(3):
        triton.unload_model(name)
        # At once, as Triton's clients expect.
        assert not triton.is_model_ready(name)
        triton.load_model(name)
    triton.unload_model(name)
    with pytest.raises(grpc.RpcError) as caught:
        served.score(name)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    # What was unloaded can be loaded again.
    triton.load_model(name)
    assert served.score(name) == pytest.approx(2)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_control_requests_for_unknown_models_are_refused(triton: Any, verb: str) -> None:
    with pytest.raises(InferenceServerException, match="absent"):
        getattr(triton, f"{verb}_model")("absent")


def test_configuration_with_a_load_request_is_refused(served: Served, triton: Any) -> None:
    if not (served.models / "overridden").exists():
        served.build("overridden", 1)
    with pytest.raises(InferenceServerException, match="config"):
        triton.load_model("overridden", config='{"max_batch_size": 8}')
    assert not triton.is_model_ready("overridden")


def test_unloading_a_configured_model_is_refused(served: Served, triton: Any) -> None:
    if not (served.models / "configured").exists():
        served.build("configured", 1)
    served.reload({"name": "configured"})
    with pytest.raises(InferenceServerException, match="configuration"):
        triton.unload_model("configured")
    triton.load_model("configured")
    assert served.score("configured", version=Int64Value(value=1)) == pytest.approx(1)


def test_reload_continues_after_the_deadline_of_its_client(served: Served) -> None:
    """The response comes at the client's deadline; the reload continues."""
    served.build("late", 1)
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        served.reload({"name": "late"}, timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 30
    wait_for(lambda: any(status[1] == AVAILABLE for status in _status_or_none(served, "late")), 60)


def _status_or_none(served: Served, name: str) -> list[tuple[int, int, int, str]]:
    try:
        return served.status(name)
    except grpc.RpcError:
        return []


def test_model_control_is_off_by_default(host) -> None:
    refused = pytest.raises(InferenceServerException, match="allow-model-control")
    with tritonclient.grpc.InferenceServerClient(host.grpc) as client, refused:
        client.load_model("ranking")
    with tritonclient.http.InferenceServerClient(host.rest) as client, refused:
        client.unload_model("ranking")
    assert httpx.post(f"http://{host.rest}/v2/repository/models/ranking/load", timeout=60).status_code == 403

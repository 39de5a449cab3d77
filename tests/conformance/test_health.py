# SPDX-License-Identifier: Apache-2.0
"""Health as grpc_health_probe and load balancers ask for it, over gRPC and HTTP."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.hosts.host_requests import HeldRequest
from helpers.hosts.served_hosts import model, version
from helpers.system.waiting import wait_until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def health(channel: grpc.Channel) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize(
    "service",
    [
        "",
        "PredictionService",
        "ModelService",
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "inference.GRPCInferenceService",
        "ranking",
    ],
)
def test_check_reports_serving(health, service: str) -> None:
    assert health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status == SERVING


def test_check_of_an_unknown_service_is_not_found(health) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="absent"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_list_names_all_services_and_models(health, served_models) -> None:
    answer = health.List(health_pb2.HealthListRequest(), timeout=60)
    services = {"", "PredictionService", "ModelService", "tensorflow.serving.PredictionService"}
    services |= {"tensorflow.serving.ModelService", "inference.GRPCInferenceService"}
    found = {name: status.status for name, status in answer.statuses.items()}
    assert found == dict.fromkeys(services | served_models.keys(), SERVING)


def test_list_contains_more_than_a_hundred_models(start_host, served_models) -> None:
    models = {f"m{number}": served_models["ranking"] for number in range(2)}
    models |= {f"absent{number}": model(1, {1: version(Path("/absent"))}) for number in range(120)}
    with start_host(models) as host, grpc.insecure_channel(host.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        found = {
            name: status.status
            for name, status in health.List(health_pb2.HealthListRequest(), timeout=60).statuses.items()
        }
    assert all(found[name] == (SERVING if name.startswith("m") else NOT_SERVING) for name in models)


def test_watch_of_an_unknown_service_reports_service_unknown(health) -> None:
    stream = health.Watch(health_pb2.HealthCheckRequest(service="absent"), timeout=60)
    assert next(stream).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    stream.cancel()


def test_probes_over_http_succeed(http: httpx.Client) -> None:
    assert [http.get(path).status_code for path in ("/healthz", "/readyz", "/v2/health/live")] == [200, 200, 200]


def test_health_follows_a_model(start_host, served_models, tmp_path) -> None:
    ranking = served_models["ranking"]
    broken = model(1, {1: version(tmp_path / "absent")})
    with start_host({"ranking": ranking, "broken": broken}) as host, grpc.insecure_channel(host.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def status(service: str) -> int:
            return health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status

        # A model that cannot be loaded concerns nobody else.
        assert (status(""), status("ranking"), status("broken")) == (SERVING, SERVING, NOT_SERVING)
        seen = _watched(health, "ranking")
        host.desire({"broken": broken})
        wait_until(lambda: seen[-1:] == [NOT_SERVING])
        assert status("") == SERVING
        host.desire({"ranking": ranking, "broken": broken})
        wait_until(lambda: seen[-1] == SERVING)


def test_readiness_ends_before_requests_are_refused(start_host, served_models, tmp_path) -> None:
    """After SIGTERM during a request, probes fail before requests are refused, and the request is answered."""
    with (
        start_host({"held": served_models["held"]}) as host,
        grpc.insecure_channel(host.grpc) as channel,
        HeldRequest(host, tmp_path) as running,
    ):
        seen = _watched(health_pb2_grpc.HealthStub(channel), "")
        wait_until(lambda: seen[-1:] == [SERVING])
        host.process.send_signal(signal.SIGTERM)
        wait_until(lambda: seen[-1] == NOT_SERVING)
        assert running.is_alive()
        assert running.release().status_code == 200
        assert host.process.wait(60) == 0


def _watched(health: health_pb2_grpc.HealthStub, service: str) -> list[int]:
    """Return a list to which the messages of a watch are added."""
    seen: list[int] = []

    def watch() -> None:
        try:
            for answer in health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=120):
                seen.append(answer.status)
        except grpc.RpcError:
            pass

    threading.Thread(target=watch, daemon=True).start()
    return seen


def test_a_host_that_never_accepted_a_state_is_not_ready(start_host, served_models) -> None:
    """A host that accepted one stays ready if the file is damaged later, and serves it after a restart."""
    ranking = served_models["ranking"]
    with start_host({"ranking": ranking}) as host:
        desired = host.state_dir / "desired.json"
        desired.write_text("{", encoding="utf-8")
        host.wait_for(lambda state: "not JSON" in (state["desired_error"] or ""))
        assert httpx.get(f"http://{host.rest}/readyz", timeout=60).status_code == 200
        host.end(signal.SIGKILL)
        host.start()
        (first, *_) = httpx.get(f"http://{host.rest}/v1/models/ranking", timeout=60).json()["model_version_status"]
        assert first["state"] == "AVAILABLE"
        assert "not JSON" in host.actual()["desired_error"]

        host.end(signal.SIGKILL)
        (host.state_dir / "hosts" / host.name / "accepted.json").unlink()
        before = host.pid
        starting = threading.Thread(target=host.start)
        starting.start()
        # Until then the file is that of the process before.
        wait_until(lambda: host.pid != before and host.actual().get("desired_error"))
        time.sleep(0.5)
        assert host.actual()["state"] == "starting"
        rest = host.actual()["endpoints"].get("rest")
        assert rest is None or httpx.get(f"http://{rest}/readyz", timeout=60).status_code == 503
        host.desire({"ranking": ranking})
        starting.join(60)
        assert httpx.get(f"http://{host.rest}/readyz", timeout=60).status_code == 200

# SPDX-License-Identifier: Apache-2.0
"""TLS, and clients that must have a certificate, on both ports."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ServedHost
from helpers.system.certificates import Certificate, make_authority, make_certificate
from helpers.system.waiting import wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Certificate:
    return make_authority(folder, "authority")


@pytest.fixture(scope="module")
def client(folder: Path, authority: Certificate) -> Certificate:
    return make_certificate(folder, "client", authority)


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Certificate:
    """A client's certificate of an authority that the host does not know."""
    return make_certificate(folder, "stranger", make_authority(folder, "another"))


@pytest.fixture(scope="module")
def server(folder: Path, authority: Certificate) -> tuple[str, ...]:
    made = make_certificate(folder, "server", authority)
    return ("--tls-cert", str(made.chain), "--tls-key", str(made.key))


@pytest.fixture(scope="module")
def mutual(start_host, served_models, server: tuple[str, ...], authority: Certificate) -> Iterator[ServedHost]:
    """A host whose clients must have a certificate."""
    arguments = (*server, "--client-ca", str(authority.chain), "--health-port", "0")
    with start_host({"ranking": served_models["ranking"]}, arguments) as host:
        yield host


def _predict(host: ServedHost, authority: Certificate, own: Certificate | None = None) -> httpx.Response:
    context = ssl.create_default_context(cafile=str(authority.chain))
    if own is not None:
        context.load_cert_chain(own.chain, own.key)
    url = f"https://{host.rest}/api/predict/ranking"
    with httpx.Client(verify=context, timeout=60) as session:
        return session.post(url, content=ranking_body())


def _health(host: ServedHost, authority: Certificate, own: Certificate | None = None) -> int:
    pair = {} if own is None else {"private_key": own.key.read_bytes(), "certificate_chain": own.chain.read_bytes()}
    credentials = grpc.ssl_channel_credentials(authority.chain.read_bytes(), **pair)
    with grpc.secure_channel(host.grpc, credentials) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60).status


def test_tls_clients_are_served_and_plain_requests_are_not(
    start_host, served_models, server: tuple[str, ...], authority: Certificate
) -> None:
    with start_host({"ranking": served_models["ranking"]}, server) as host:
        assert _predict(host, authority).status_code == 200
        wait_until(lambda: _health(host, authority) == health_pb2.HealthCheckResponse.SERVING, "a host that is healthy")
        # A plain request gets nothing, or is told so.
        with contextlib.suppress(httpx.HTTPError):
            assert httpx.get(f"http://{host.rest}/healthz", timeout=60).status_code == 400


def test_client_with_a_certificate_is_served(mutual: ServedHost, authority: Certificate, client: Certificate) -> None:
    assert _predict(mutual, authority, client).status_code == 200
    wait_until(
        lambda: _health(mutual, authority, client) == health_pb2.HealthCheckResponse.SERVING, "a host that is healthy"
    )


@pytest.mark.parametrize("own", [None, "stranger"])
def test_a_client_without_a_certificate_is_refused(
    mutual: ServedHost, authority: Certificate, stranger: Certificate, own: str | None
) -> None:
    certificate = None if own is None else stranger
    with pytest.raises(httpx.HTTPError):
        _predict(mutual, authority, certificate)
    with pytest.raises(grpc.RpcError) as caught:
        _health(mutual, authority, certificate)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_probes_need_no_certificate(mutual: ServedHost) -> None:
    """Probes of Kubernetes and of Prometheus have no certificate."""
    plain = f"http://{mutual.actual()['endpoints']['health']}"
    for path in ("/healthz", "/readyz", "/metrics", "/monitoring/prometheus/metrics"):
        answer = httpx.get(plain + path, timeout=60)
        assert (answer.status_code, answer.text != "") == (200, True), path
        assert httpx.head(plain + path, timeout=60).status_code == 200
    for path in ("/api/predict/ranking", "/v1/models/ranking:predict", "/v2/models/ranking/infer"):
        assert httpx.post(plain + path, content=ranking_body(), timeout=60).status_code == 404
    assert httpx.get(plain + "/v1/models/ranking", timeout=60).status_code == 404

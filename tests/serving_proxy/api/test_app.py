# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI description matches the API."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from helpers.proxies.proxy_runs import ProxyThread


@pytest.fixture(scope="module")
def described(proxy: ProxyThread) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(
        f"{proxy.url}/openapi.json", headers=proxy.headers(), trust_env=False, timeout=60
    ).json()
    return found


def test_openapi_describes_every_verb(described: dict[str, Any]) -> None:
    paths = {path.removeprefix("/v1/models/{name}/") for path in described["paths"]}
    verbs = {"deploy", "undeploy", "traffic", "ramp", "promote", "rollback", "pause", "versions", "explain"}
    assert verbs <= paths
    assert {"/v1/status", "/v1/events", "/v1/drain", "/v1/jobs/{number}", "/v1/stream", "/healthz", "/metrics"} <= paths


def test_openapi_describes_errors_in_their_own_form(described: dict[str, Any]) -> None:
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            if path.startswith("/v1"):
                (content,) = operation["responses"]["404"]["content"].values()
                assert content["schema"]["$ref"].endswith("/ErrorAnswer")
    assert "HTTPValidationError" not in described["components"]["schemas"]


def test_every_operation_has_a_description_and_its_own_id(described: dict[str, Any]) -> None:
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    assert all(operation["description"].endswith(".") for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_pages_that_load_files_from_other_servers_are_off(proxy: ProxyThread) -> None:
    for path in ("/docs", "/redoc"):
        assert httpx.get(proxy.url + path, headers=proxy.headers(), trust_env=False, timeout=60).status_code == 404

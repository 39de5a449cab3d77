# SPDX-License-Identifier: Apache-2.0
"""Requests from pages of other origins."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from helpers.hosts.served_hosts import ServedHost

ORIGIN = "https://shop.example"
PREDICT = "/v1/models/ranking:predict"
ROWS = {"instances": [[1.0, 2.0, 3.0]]}
QUESTION = {"access-control-request-method": "POST", "access-control-request-headers": "content-type, x-routing-key"}


@pytest.fixture(scope="module")
def shop(start_host, served_models) -> Iterator[ServedHost]:
    arguments = ("--cors-origin", ORIGIN, "--cors-origin", "http://localhost:3000")
    with start_host({"ranking": served_models["ranking"]}, arguments) as host:
        yield host


def test_pages_of_allowed_origins_may_read_responses(shop: ServedHost) -> None:
    answer = httpx.post(f"http://{shop.rest}{PREDICT}", json=ROWS, headers={"origin": ORIGIN}, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"
    exposed = {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {"x-model-version", "inference-header-content-length", "retry-after"} <= exposed
    # Pages may read why they were refused.
    answer = httpx.post(
        f"http://{shop.rest}/v1/models/absent:predict", json=ROWS, headers={"origin": ORIGIN}, timeout=60
    )
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, ORIGIN)


def test_preflight_of_an_allowed_origin_is_answered(shop: ServedHost) -> None:
    answer = httpx.options(f"http://{shop.rest}{PREDICT}", headers={"origin": ORIGIN, **QUESTION}, timeout=60)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "content-type, x-routing-key"
    assert int(answer.headers["access-control-max-age"]) > 0


def test_pages_of_other_origins_may_not_read_responses(shop: ServedHost) -> None:
    other = {"origin": "https://elsewhere.example"}
    answer = httpx.options(f"http://{shop.rest}{PREDICT}", headers={**other, **QUESTION}, timeout=60)
    assert answer.status_code == 403
    assert answer.json() == {"error": "origin 'https://elsewhere.example': not allowed, expected one of --cors-origin"}
    answer = httpx.post(f"http://{shop.rest}{PREDICT}", json=ROWS, headers=other, timeout=60)
    assert "access-control-allow-origin" not in answer.headers
    # Who is no page is answered as ever.
    assert httpx.post(f"http://{shop.rest}{PREDICT}", json=ROWS, timeout=60).status_code == 200


def test_asterisk_allows_all_origins(start_host, served_models) -> None:
    with start_host({"ranking": served_models["ranking"]}, ("--cors-origin", "*")) as host:
        answer = httpx.post(
            f"http://{host.rest}{PREDICT}", json=ROWS, headers={"origin": "https://x.example"}, timeout=60
        )
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "vary" not in answer.headers


def test_cors_is_off_by_default(host: ServedHost) -> None:
    answer = httpx.post(f"http://{host.rest}{PREDICT}", json=ROWS, headers={"origin": ORIGIN}, timeout=60)
    assert "access-control-allow-origin" not in answer.headers
    assert httpx.options(f"http://{host.rest}{PREDICT}", headers={"origin": ORIGIN, **QUESTION}).status_code == 405

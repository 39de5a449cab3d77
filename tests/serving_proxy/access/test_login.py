# SPDX-License-Identifier: Apache-2.0
"""Sessions of the page, from a browser's side: what one half of them, or another site, can do is nothing."""

from __future__ import annotations

import time
from types import SimpleNamespace

import httpx
import pytest

from helpers.proxies.proxy_runs import ProxyThread
from serving_proxy.access import login


def browser(proxy: ProxyThread, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=proxy.url, headers=headers, trust_env=False, timeout=60)


def token_of(proxy: ProxyThread) -> str:
    return (proxy.state_dir / "admin.token").read_text(encoding="ascii").strip()


def log_in(http: httpx.Client, token: str) -> str:
    answer = http.post("/v1/login", json={"token": token})
    assert answer.status_code == 200
    assert token not in answer.text + str(answer.headers)
    key: str = answer.json()["key"]
    return key


def test_a_session_needs_its_cookie_and_its_key(proxy: ProxyThread) -> None:
    with browser(proxy) as http:
        key = log_in(http, token_of(proxy))
        assert http.get("/v1/status").status_code == 401
        assert http.get("/v1/status", headers={"X-Session-Key": key}).status_code == 200
        assert http.post("/v1/drain", json={"drain": False}, headers={"X-Session-Key": key}).status_code == 200
        for wrong in ("", "x", key[:-1], key + "0", "\xff"):
            assert http.get("/v1/status", headers={"X-Session-Key": wrong.encode("latin-1")}).status_code == 401
        # Another session's key does not fit.
        with browser(proxy) as other:
            assert http.get("/v1/status", headers={"X-Session-Key": log_in(other, token_of(proxy))}).status_code == 401
    assert (
        httpx.get(proxy.url + "/v1/status", headers={"X-Session-Key": key}, trust_env=False, timeout=60).status_code
        == 401
    )


@pytest.mark.parametrize("cookie", ["", "x", "1.2.3", "9999999999.00.00", "a=b; c", '"', "\\377", "9" * 5000 + ".a.b"])
def test_forged_cookies_are_refused(proxy: ProxyThread, cookie: str) -> None:
    port = httpx.URL(proxy.url).port
    headers = {"Cookie": f"{login.cookie_name(port or 0)}={cookie}", "X-Session-Key": "x"}
    assert httpx.get(proxy.url + "/v1/status", headers=headers, trust_env=False, timeout=60).status_code == 401


def test_a_session_ends_at_logout_or_when_it_expires(proxy: ProxyThread, monkeypatch: pytest.MonkeyPatch) -> None:
    with browser(proxy) as http:
        headers = {"X-Session-Key": log_in(http, token_of(proxy))}
        cookies = dict(http.cookies)
        assert http.post("/v1/logout", headers=headers).status_code == 204
        assert dict(http.cookies) == {}
        with httpx.Client(base_url=proxy.url, cookies=cookies, headers=headers, trust_env=False, timeout=60) as again:
            assert again.get("/v1/status").status_code == 401
    with browser(proxy) as http:
        headers = {"X-Session-Key": log_in(http, token_of(proxy))}
        jar = dict(http.cookies)
        assert http.get("/v1/status", headers=headers).status_code == 200
        monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda: time.time() + login.LASTS_S + 1))
        with httpx.Client(base_url=proxy.url, cookies=jar, headers=headers, trust_env=False, timeout=60) as later:
            assert later.get("/v1/status").status_code == 401


def test_other_sites_cannot_log_in_or_use_a_session(proxy: ProxyThread) -> None:
    body = {"token": token_of(proxy)}
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        with browser(proxy, Origin=origin) as http:
            answer = http.post("/v1/login", json=body)
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers
    with browser(proxy) as http:
        key = log_in(http, body["token"])
        answer = http.post("/v1/drain", json={}, headers={"X-Session-Key": key, "Origin": "http://127.0.0.1:1"})
        assert answer.status_code == 403


@pytest.mark.parametrize("body", [{"token": "wrong-token-of-some-length"}, {"token": ""}, {}, {"token": 1}, []])
def test_wrong_logins_are_refused(proxy: ProxyThread, body: object) -> None:
    answer = httpx.post(proxy.url + "/v1/login", json=body, trust_env=False, timeout=60)
    assert answer.status_code in {400, 401}
    assert "set-cookie" not in answer.headers


def test_without_a_token_there_is_no_login(open_proxy: ProxyThread) -> None:
    assert httpx.post(open_proxy.url + "/v1/login", json={"token": "x"}, trust_env=False, timeout=60).status_code == 404

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from helpers.proxies.proxy_runs import Proxy, ProxyThread
from serving_proxy.page import files

FOLDER = Path(__file__).resolve().parents[3] / "serving_proxy" / "page" / "static"


def test_page_is_served_with_a_strict_policy(proxy: Proxy) -> None:
    for path, kind in (("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/style.css", "text/css")):
        answer = httpx.get(proxy.url + path, timeout=60)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_a_browser_has_is_not_sent_again(proxy: Proxy) -> None:
    tag = httpx.get(f"{proxy.url}/page/main.js", timeout=60).headers["etag"]
    answer = httpx.get(f"{proxy.url}/page/main.js", headers={"If-None-Match": tag}, timeout=60)
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/page/", "/page/none.js", "/page/__init__.py", "/page/..%2f__init__.py", "/page/a/b"]
)
def test_unknown_files_are_not_served(proxy: Proxy, path: str) -> None:
    assert httpx.get(proxy.url + path, timeout=60).status_code == 404


def test_the_page_needs_no_token_but_its_data_do(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-is-long-enough\n", encoding="ascii")
    with ProxyThread(tmp_path / "proxy", "--token-file", str(token)) as proxy:
        assert httpx.get(f"{proxy.url}/", timeout=60).status_code == 200
        assert httpx.get(f"{proxy.url}/page/main.js", timeout=60).status_code == 200
        for path in ("/v1/status", "/v1/history", "/v1/machine", "/v1/stream", "/openapi.json", "/metrics", "//"):
            assert httpx.get(proxy.url + path, timeout=60).status_code == 401, path


def test_files_need_nothing_from_elsewhere_and_set_no_markup() -> None:
    assert set(files()) == {path.name for path in FOLDER.iterdir()}
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        text = text.replace("http://127.0.0.1:8502", "")
        assert "SPDX-License-Identifier: Apache-2.0" in text[:120], path.name
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            path.name
        )
        assert not re.search(r"<[^>]+\s(on\w+|style)=", text), path.name

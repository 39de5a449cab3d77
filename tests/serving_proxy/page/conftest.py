# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests of the page, and a proxy with something to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from helpers.proxies.proxy_runs import ProxyThread, write_model
from helpers.system import browser
from helpers.system.browser import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser


# Not for the session: while it is open, the thread of the tests has a running event loop.
@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser.browser() as made:
        yield made


@pytest.fixture
def visit(chrome: Browser, proxy: ProxyThread) -> Callable[..., Visit]:
    """`visit(width=360)`: the page of the proxy."""
    return lambda width=1280, height=900, **more: Visit(
        chrome, proxy.url, viewport={"width": width, "height": height}, **more
    )


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    """A proxy with `ranking`: baseline 3, variant 4, shadow 5, and 6, which failed with markup in its message."""
    folder = tmp_path_factory.mktemp("page")
    with ProxyThread(folder / "proxy", "--admin-auth", "none") as running, running.client() as client:
        models = folder / "models"
        client.deploy("ranking", write_model(models / "3"), wait=True, slo_p99_ms=20)
        client.deploy("ranking", write_model(models / "4"), traffic=10, wait=True, slo_p99_ms=20, labels=["canary"])
        client.deploy("ranking", write_model(models / "5"), shadow=20, wait=True)
        bad = write_model(models / "6 <img src=x onerror=document.title='XSS'>")
        (bad / "refuse").write_text("<script>document.title = 'XSS'</script><b>bold</b>", encoding="utf-8")
        client.deploy("ranking", bad, version=6)
        client.guard("ranking", min_requests=20, window_s=5, min_correlation=0.9)
        yield running

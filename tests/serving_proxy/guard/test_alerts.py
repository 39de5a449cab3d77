# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from serving_proxy.errors import InvalidError
from serving_proxy.guard.alerts import ATTEMPTS, Alerts, read_webhook
from serving_proxy.system import logs


@contextmanager
def webhook(*codes: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers with these codes in turn, then always with the last; yields its URL and the requests."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(codes[min(len(got), len(codes)) - 1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def deliver(alerts: Alerts, *texts: str) -> None:
    """Send alerts, and wait until each was delivered or lost."""

    async def run() -> None:
        for text in texts:
            alerts.send(text, {"model": "ranking", "version": 4})
        task = asyncio.create_task(alerts.run())
        async with asyncio.timeout(60):
            while alerts.sent + alerts.lost < len(texts):
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_an_alert_is_posted_as_json() -> None:
    with webhook(200) as (url, got):
        deliver(Alerts(url), "ranking/4: rolled back")
    assert got == [{"text": "ranking/4: rolled back", "model": "ranking", "version": 4}]


def test_an_alert_is_retried_while_the_webhook_is_down() -> None:
    with webhook(503, 500, 429, 204) as (url, got):
        alerts = Alerts(url, first_pause_s=0.01)
        deliver(alerts, "one", "two")
    assert [alert["text"] for alert in got] == ["one"] * 4 + ["two"]
    assert (alerts.sent, alerts.lost) == (2, 0)


@pytest.mark.parametrize(("code", "times"), [(404, 1), (302, ATTEMPTS), (500, ATTEMPTS)])
def test_an_alert_that_the_webhook_refuses_is_not_retried(code: int, times: int) -> None:
    with webhook(code) as (url, got):
        alerts = Alerts(url, first_pause_s=0.001)
        deliver(alerts, "one")
    assert len(got) == times
    assert (alerts.sent, alerts.lost) == (0, 1)


def test_an_alert_to_a_missing_webhook_is_lost_after_all_attempts() -> None:
    alerts = Alerts("http://127.0.0.1:1/hook", first_pause_s=0.001)
    deliver(alerts, "one")
    assert alerts.lost == 1


@pytest.mark.parametrize("code", [200, 500, None])
def test_the_secret_part_of_a_webhook_is_not_logged(capfd: pytest.CaptureFixture[str], code: int | None) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    logs.set_up("DEBUG")
    try:
        with webhook(code or 200) as (url, _):
            url = f"{url if code else 'http://127.0.0.1:1/hook'}/T0KEN-s3cret?key=s3cret"
            deliver(Alerts(url, first_pause_s=0.001), "one")
        # Each byte is sent as it is, and a port that no URL can have is noticed late.
        deliver(Alerts("http://127.0.0.1:99999/s3cret", first_pause_s=0.001), "one")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    said = capfd.readouterr().err
    assert "alert lost: " in said
    assert "s3cret" not in said


def test_a_webhook_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hook"
    file.write_text("https://hooks.example/s3cret\n", encoding="ascii")
    assert read_webhook(f"@{file}") == "https://hooks.example/s3cret"
    for text in (
        "hooks.example/s3cret",
        "ftp://x/s3cret",
        "https://",
        "http://[s3cret",
        "https://x:s3cret/",
        "http://x:0/",
    ):
        file.write_text(text, encoding="ascii")
        for given in (text, f"@{file}"):
            with pytest.raises(InvalidError, match=r"--alert-webhook.*: \d+ characters that are not a URL") as refused:
                read_webhook(given)
            assert "s3cret" not in str(refused.value)


def test_a_full_queue_loses_the_oldest_alert() -> None:
    with webhook(200) as (url, got):
        alerts = Alerts(url)
        deliver(alerts, *(str(number) for number in range(103)))
    assert [alert["text"] for alert in got] == [str(number) for number in range(3, 103)]
    assert (alerts.sent, alerts.lost) == (100, 3)

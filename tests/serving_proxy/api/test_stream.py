# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy import Client

Stream = Queue[tuple[str, Any]]
Make = Callable[..., Path]


def listen(proxy: ProxyThread, *topics: str, after: int | None = None) -> tuple[Stream, threading.Thread]:
    """Collect a stream in the background; a pair with None at its end."""
    queue: Stream = Queue()

    def run() -> None:
        with proxy.client() as client:
            for kind, data in client.stream(*topics, after=after):
                queue.put((kind, data))
        queue.put(("end", None))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return queue, thread


def test_stream_sends_events_when_they_happen(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    queue, _ = listen(proxy, "events", after=client.status()["last_event"])
    client.deploy(name, model(3), wait=True)
    client.pause(name)
    got: list[dict[str, Any]] = []
    while not got or got[-1]["kind"] != "pause":
        kind, event = queue.get(timeout=60)
        assert kind == "event"
        got.append(event)
    assert [event["id"] for event in got] == sorted({event["id"] for event in got})
    assert [event["kind"] for event in got if event["model"] == name] == ["deploy", "baseline", *["state"] * 4, "pause"]


def test_stream_sends_missed_events_first(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    first = client.events(model=name)[0]["id"]
    queue, _ = listen(proxy, "events", after=first)
    assert queue.get(timeout=60)[1]["id"] == first + 1


def test_stream_sends_the_status_when_it_changes(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    queue, _ = listen(proxy, "status")
    assert queue.get(timeout=60)[0] == "status"
    client.deploy(name, model(3))

    def ready() -> bool:
        kind, status = queue.get(timeout=60)
        assert kind == "status"
        states = [v["state"] for model in status["models"] if model["name"] == name for v in model["versions"]]
        return states == ["ready"]

    wait_for(ready)


def test_streams_end_with_the_proxy(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, host="none") as proxy:
        queue, thread = listen(proxy)
        assert queue.get(timeout=60)
        proxy.stop()
        thread.join(30)
        assert not thread.is_alive()


def test_a_disconnected_listener_is_removed(proxy: ProxyThread, client: Client, tmp_path: Path, name: str) -> None:
    for _ in range(5):
        with proxy.client() as other:
            stream = other.stream()
            next(stream)
            stream.close()
    client.deploy(name, write_model(tmp_path / "3"), wait=True)

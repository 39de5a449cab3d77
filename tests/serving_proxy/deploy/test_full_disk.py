# SPDX-License-Identifier: Apache-2.0
"""A disk that is really full: a small tmpfs as the state directory, filled to its last byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ProxyProcess, wait_for, write_model
from serving_proxy.errors import ExhaustedError

_MB = 32


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyProcess]:
    made = ProxyProcess(tmp_path)
    made.state_dir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_MB}m", "tmpfs", str(made.state_dir)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mount: not permitted, expected the rights to mount a tmpfs")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.state_dir)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that is left."""
    file = folder / f"filling-{len(list(folder.glob('filling-*')))}"
    with file.open("wb", buffering=0) as out:
        for size in (1024 * 1024, 4096, 1):
            try:
                while out.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return file


def arms(proxy: ProxyProcess) -> list[Any]:
    routing = proxy.desired()["models"]["ranking"]["routing"]
    return [] if routing.get("paused") else list(routing.get("arms", []))


def test_a_full_disk_is_seen_and_does_not_stop_the_kill_switch(proxy: ProxyProcess, tmp_path: Path) -> None:
    with proxy:
        with proxy.client() as client:
            for number in (1, 2):
                client.deploy("ranking", write_model(tmp_path / str(number)), wait=True)
            client.traffic("ranking", {2: 10})
            wait_for(lambda: arms(proxy))
            fill(proxy.state_dir)
            # Nobody asks for anything, and it is said all the same, and goes on being said.
            wait_for(lambda: "No space left" in (client.status()["fault"] or ""))
            with pytest.raises(ExhaustedError):
                client.traffic("ranking", {2: 20})
            assert client.versions("ranking")["versions"][1]["traffic"] == 10
            assert client.pause("ranking")["paused"]
            assert arms(proxy) == []
            # The room that was kept for this is used up as well.
            fill(proxy.state_dir)
            wait_for(lambda: client.status()["fault"])
        # What was promised outlives a crash.
        proxy.kill()
        proxy.start()
        with proxy.client() as client:
            assert client.versions("ranking")["paused"]
            assert arms(proxy) == []


def test_without_any_room_the_kill_switch_works_and_is_written_later(proxy: ProxyProcess, tmp_path: Path) -> None:
    with proxy, proxy.client() as client:
        for number in (1, 2):
            client.deploy("ranking", write_model(tmp_path / str(number)), wait=True)
        client.traffic("ranking", {2: 10})
        wait_for(lambda: arms(proxy))
        (proxy.state_dir / "reserve").unlink()
        filling = fill(proxy.state_dir)
        with (proxy.state_dir / "proxy.sqlite3-wal").open("rb") as log:
            written = os.fstat(log.fileno()).st_size
        assert client.pause("ranking")["paused"]
        assert arms(proxy) == []
        wait_for(lambda: client.status()["fault"])
        filling.unlink()
        wait_for(lambda: client.status()["fault"] is None)
        wait_for(lambda: (proxy.state_dir / "reserve").exists())
        assert (proxy.state_dir / "proxy.sqlite3-wal").stat().st_size >= written
        assert "ranking: paused, all requests go to the baseline" in [event["message"] for event in client.events()]
        proxy.kill()
        proxy.start()
        with proxy.client() as later:
            assert later.versions("ranking")["paused"]

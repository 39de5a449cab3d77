# SPDX-License-Identifier: Apache-2.0
"""Warm-up files that an agent fetches, from a connection whose proxy is this test."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from serving_proxy.agent.inputs import Inputs
from serving_proxy.agent.link import Link
from serving_proxy.agent.settings import AgentSettings

PART = 1000


def test_versions_with_other_folders_fetch_the_same_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(250)) * 10
    name = f"{hashlib.sha256(data).hexdigest()[:32]}.tfrecord"
    asked: list[int] = []

    async def warmup(link: Link, file: str, start: int) -> tuple[bytes, int]:
        assert file == name
        asked.append(start)
        await asyncio.sleep(0)
        return data[start : start + PART], len(data)

    monkeypatch.setattr(Link, "warmup", warmup)
    entries: list[dict[str, Any]] = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        folder = str(tmp_path / str(number))
        entries.append({"warmup_file": f"/elsewhere/{name}", "config": {"checkpoint_dir": folder}})

    async def run() -> list[str]:
        link = Link(AgentSettings(server=("http://127.0.0.1:1",), state_dir=tmp_path / "state"))
        inputs = Inputs(tmp_path / "warmups", link)
        try:
            return await asyncio.gather(*(inputs.fetch(entry, lambda done, total: None) for entry in entries))
        finally:
            await link.close()

    assert asyncio.run(run()) == [str(tmp_path / "warmups" / name)] * 3
    assert (tmp_path / "warmups" / name).read_bytes() == data
    assert asked == [0, PART, 2 * PART]

# SPDX-License-Identifier: Apache-2.0
"""Followed files: a file that is still being written is not applied."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from serving_proxy.errors import InvalidError, NotFoundError
from serving_proxy.sources import watched_file
from serving_proxy.sources.watched_file import WatchedFile


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a file is read as late as on storage that hangs."""
    monkeypatch.setattr(watched_file, "_PATIENCE_S", 60.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("first", encoding="utf-8")
    return tmp_path / "file"


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Give a test an event loop."""

    @functools.wraps(test)
    def within(**given: Any) -> None:
        asyncio.run(test(**given))

    return within


async def started(path: Path) -> WatchedFile:
    """Read a file and take what it holds."""
    watched = WatchedFile(path, "settings")
    watched.take(await watched.read())
    assert not watched.at_rest
    return watched


@run
async def test_a_file_counts_once_two_looks_find_the_same(path: Path) -> None:
    watched = await started(path)
    assert (await watched.look(), watched.at_rest) == (None, True)
    path.write_text("", encoding="utf-8")
    assert (await watched.look(), watched.at_rest) == (None, False)
    path.write_text("sec", encoding="utf-8")
    assert await watched.look() is None
    path.write_text("second", encoding="utf-8")
    assert await watched.look() is None
    # Until somebody has acted upon it.
    assert (await watched.look(), await watched.look()) == ("second", "second")
    watched.take("second")
    assert await watched.look() is None


@run
async def test_a_reverted_file_is_not_applied(path: Path) -> None:
    watched = await started(path)
    path.write_text("second", encoding="utf-8")
    assert await watched.look() is None
    path.write_text("first", encoding="utf-8")
    assert (await watched.look(), await watched.look()) == (None, None)


@run
async def test_an_unreadable_file_is_reported(path: Path) -> None:
    watched = await started(path)
    path.unlink()
    with pytest.raises(NotFoundError):
        await watched.look()
    assert watched.at_rest
    path.mkdir()
    with pytest.raises(InvalidError, match="a folder"):
        await watched.look()
    path.rmdir()
    path.write_text("second", encoding="utf-8")
    assert (await watched.look(), await watched.look()) == (None, "second")


@run
async def test_hanging_storage_does_not_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = await started(path)
    path.write_text("second", encoding="utf-8")
    goes_on = threading.Event()
    read = watched_file.read_regular

    def hang(file: Path, most: int, what: str) -> bytes:
        goes_on.wait(60)
        return read(file, most, what)

    monkeypatch.setattr(watched_file, "read_regular", hang)
    with monkeypatch.context() as patch:
        patch.setattr(watched_file, "_PATIENCE_S", 0.1)
        async with asyncio.timeout(30):
            assert (await watched.look(), await watched.look()) == (None, None)
    goes_on.set()
    assert (await watched.look(), await watched.look()) == (None, "second")

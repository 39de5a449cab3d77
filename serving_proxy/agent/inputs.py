# SPDX-License-Identifier: Apache-2.0
"""What versions need on a machine besides their files: warm-up files, which the proxy has, and folders."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from serving_proxy.agent.artifacts import Told
from serving_proxy.agent.link import Link
from serving_proxy.agent.localize import NO_WARMUP, inputs_key
from serving_proxy.artifacts.fetching import PATIENCE_S
from serving_proxy.artifacts.warmups import hash_of_name
from serving_proxy.errors import ExhaustedError, LateError, NotFoundError, UnavailableError
from serving_proxy.system.files import private_folder

log = logging.getLogger("serving_proxy.agent")

_UNUSED_S = 600.0
_PAUSE_S = 0.5


class Inputs:
    """Fetches warm-up files from the proxy, and looks for folders that must be on this machine.

    Parameters
    ----------
    folder : Path
        Where the warm-up files of this machine are kept.
    link : Link
    """

    def __init__(self, folder: Path, link: Link) -> None:
        self._folder = folder
        self._link = link
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, entry: Mapping[str, Any], told: Told) -> str:
        """Return the local path of a version's warm-up file, once all is there; `NO_WARMUP`: it has none.

        Parameters
        ----------
        entry : dict
            The version's entry of the proxy's desired state.
        told : callable

        Raises
        ------
        ProxyError
            A folder is not on this machine, or the proxy cannot be reached.
        """
        needed = json.loads(inputs_key(entry) or "{}")
        file = needed.pop("warmup_file", None)
        for name, path in needed.items():
            # A file system of another machine may be slow.
            if not await asyncio.to_thread(os.path.isdir, path):
                raise NotFoundError(
                    f"{name} {path}: not on this machine, expected a folder that machines share"
                    + (", or the URL of a timeline in a store" if name == "follow" else "")
                )
        return NO_WARMUP if file is None else await self._fetch(Path(file), told)

    async def _fetch(self, file: Path, told: Told) -> str:
        # Versions with other folders may need the same file at the same time.
        lock = self._locks.setdefault(file.name, asyncio.Lock())
        async with lock:
            return await self._fetch_alone(file, told)

    async def _fetch_alone(self, file: Path, told: Told) -> str:
        expected = hash_of_name(file.name)
        assert expected is not None
        for place in _places(file, self._folder):
            if await asyncio.to_thread(_has_content, place, expected):
                return str(place)
        folder = await asyncio.to_thread(private_folder, self._folder, "warm-up files")
        place, beside = folder / file.name, folder / f".{file.name}.part"
        try:
            done = beside.stat().st_size if beside.exists() else 0
            while True:
                data, size = await self._part(file.name, done)
                await asyncio.to_thread(_append, beside, done, data)
                done += len(data)
                told(done, size)
                if done >= size:
                    break
                if not data:
                    raise UnavailableError(f"warm-up file {file.name}: ends after {done} bytes, expected {size}")
        except NotFoundError as error:
            # Another proxy has made it. Serving without it is better than not at all.
            log.warning("%s; served without it", error)
            return NO_WARMUP
        if not await asyncio.to_thread(_has_content, beside, expected):
            beside.unlink(missing_ok=True)
            raise UnavailableError(f"warm-up file {file.name}: other bytes, expected those of its name")
        os.rename(beside, place)
        return str(place)

    async def _part(self, name: str, start: int) -> tuple[bytes, int]:
        """Read a part of a file, again and again for some time if the connection breaks."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._link.warmup(name, start)
            except (UnavailableError, LateError):
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(_PAUSE_S)

    def remove_unused(self, used: set[str]) -> None:
        """Remove warm-up files that no version uses, except new ones."""
        for path in self._folder.glob("*"):
            with suppress(OSError):
                if str(path) not in used and time.time() - path.stat().st_mtime > _UNUSED_S:
                    path.unlink()


def _places(file: Path, folder: Path) -> list[Path]:
    """Return where a warm-up file may be on this machine already: at the proxy's path, if that is shared, or here."""
    return [file, folder / file.name]


def _has_content(path: Path, expected: str) -> bool:
    """Return whether a file is there and has the content of its name."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().startswith(expected)
    except OSError:
        return False


def _append(path: Path, start: int, data: bytes) -> None:
    try:
        with path.open("r+b" if start else "wb") as file:
            file.seek(start)
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ExhaustedError(f"{path}: {error.strerror}, expected room for {len(data)} bytes") from error

# SPDX-License-Identifier: Apache-2.0
"""Copy the timelines that versions of this machine follow in stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving_proxy.artifacts.timelines import TimelineCopy, timeline_folder
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import ProxyError
from serving_proxy.system.files import private_folder

log = logging.getLogger("serving_proxy.agent")

PERIOD_S = 0.5


class StoredTimelines:
    """The copies of timelines; a store that does not answer delays no other.

    Parameters
    ----------
    root : Path
        The folder of all copies.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._copies: dict[str, TimelineCopy] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, str] = {}

    def localize(self, desired: Mapping[str, Any]) -> dict[str, Any]:
        """Return the proxy's state with the folders of this machine, and copy these timelines from now on.

        Raises
        ------
        ExhaustedError, InvalidError
            A folder cannot be made, or a URL is invalid.
        """
        wanted: dict[str, TimelineCopy] = {}
        models: dict[str, Any] = {}
        for name, model in desired.get("models", {}).items():
            versions = dict(model["versions"])
            for number, entry in versions.items():
                url = (entry.get("annotations") or {}).get("followed")
                if url is not None and "follow" in entry:
                    wanted[url] = self._copies.get(url) or self._copy(url)
                    versions[number] = {**entry, "follow": str(wanted[url].folder)}
            models[name] = {**model, "versions": versions}
        self._copies = wanted
        return {**desired, "models": models}

    async def run(self) -> None:
        """Copy new deltas until the task is cancelled."""
        while True:
            for url, copy in self._copies.items():
                if url not in self._running or self._running[url].done():
                    self._running[url] = asyncio.create_task(self._step(url, copy))
            await asyncio.sleep(PERIOD_S)

    def _copy(self, url: str) -> TimelineCopy:
        place = parse_url(url, "timeline")
        return TimelineCopy(timeline_folder(private_folder(self._root, "timelines"), place), place)

    async def _step(self, url: str, copy: TimelineCopy) -> None:
        try:
            await asyncio.to_thread(copy.step)
            fault = ""
        except ProxyError as error:
            fault = str(error)
        except Exception as error:
            # A bug, or a disk that fails: other timelines must not wait for it.
            fault = f"{url}: {type(error).__name__}: {error}"
        if (fault == "") != (self._errors.get(url, "") == ""):
            log.warning("%s", f"{fault}; the copied deltas stay" if fault else f"{url}: is copied again")
        self._errors[url] = fault

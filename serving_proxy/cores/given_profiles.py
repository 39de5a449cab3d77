# SPDX-License-Identifier: Apache-2.0
"""Put the profiles that operators give with versions into the model store, for other machines with these versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.artifacts.given_profiles import has_profile, put_profile, remove_profile
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.deploy.control import Control
from serving_proxy.errors import NotFoundError
from serving_proxy.records.models import Version

PERIOD_S = 2.0


class GivenProfiles:
    """Uploads each profile once; a store that does not answer delays nothing else."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._root = control.options.stores.store
        self._done: dict[str, str] = {}

    async def run(self) -> None:
        """Look for profiles that were given until the task is cancelled; end at once if there is no model store."""
        while self._root is not None:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Upload the profiles that have been given, and forget those that have been replaced by `auto`."""
        root = self._root
        if root is None:
            return
        for stored, (name, version) in self._versions().items():
            number, given = version.number, version.profile
            if self._done.get(stored) == given:
                continue
            with self._control.recording_faults(f"profile of {name}/{number}"):
                if given is not None:
                    is_new = await asyncio.to_thread(_put, root, stored, Path(given))
                    self._done[stored] = given
                    if is_new:
                        self._control.note("profile", f"{name}/{number}: its profile is in {root}", name, number)
                else:
                    await asyncio.to_thread(remove_profile, root, stored)
                    del self._done[stored]

    def _versions(self) -> dict[str, tuple[str, Version]]:
        """Return by URL the model and the version in a store whose profile counts.

        Several versions may be deployed from one URL: the one with a profile counts, of several the latest.
        """
        found: dict[str, tuple[str, Version]] = {}
        for name, model in self._control.models.items():
            for version in model.versions.values():
                if not version.desired or version.stored is None:
                    continue
                other = found.get(version.stored)
                if other is None or _rank(version) > _rank(other[1]):
                    found[version.stored] = (name, version)
        return found


def _rank(version: Version) -> tuple[bool, float]:
    return version.profile is not None, version.deployed_at


def _put(root: StoreUrl, stored: str, file: Path) -> bool:
    """Upload a profile unless its file is gone and the store has one of this version; return whether it is new."""
    try:
        return put_profile(root, stored, file)
    except NotFoundError:
        # An earlier proxy, maybe on another machine, has uploaded it.
        if not has_profile(root, stored):
            raise
        return False

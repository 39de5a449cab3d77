# SPDX-License-Identifier: Apache-2.0
"""Put the profiles that operators give with versions into the model store, for other machines with these versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.artifacts.given_profiles import put_profile, remove_profile
from serving_proxy.deploy.control import Control

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
        for name, number, stored, given in self._versions():
            if self._done.get(stored) == given:
                continue
            with self._control.recording_faults(f"profile of {name}/{number}"):
                if given is not None:
                    is_new = await asyncio.to_thread(put_profile, root, stored, Path(given))
                    self._done[stored] = given
                    if is_new:
                        self._control.note("profile", f"{name}/{number}: its profile is in {root}", name, number)
                else:
                    await asyncio.to_thread(remove_profile, root, stored)
                    del self._done[stored]

    def _versions(self) -> list[tuple[str, int, str, str | None]]:
        """Return model, version, URL and profile of the versions that are in a store."""
        return [
            (name, version.number, version.stored, version.profile)
            for name, model in self._control.models.items()
            for version in model.versions.values()
            if version.desired and version.stored is not None
        ]

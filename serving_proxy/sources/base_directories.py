# SPDX-License-Identifier: Apache-2.0
"""Follow the base directories of models: deploy the versions that their policies choose, and take out the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.operations import Operations
from serving_proxy.deploy.version_policy import choose_versions
from serving_proxy.errors import ProxyError
from serving_proxy.sources.base_directory import BaseDirectory
from serving_proxy.sources.model_settings import SettingsFile
from serving_proxy.sources.remote_base_directory import RemoteBaseDirectory
from serving_proxy.sources.repeated_notes import RepeatedNotes


@dataclass
class _Followed:
    directory: BaseDirectory | RemoteBaseDirectory
    looking: asyncio.Task[Mapping[int, tuple[Path | StoreUrl, str]] | None] | None = None
    missing: bool = False
    follows: int = 0


class BaseDirectories:
    """The base directories of all models that have one."""

    def __init__(self, control: Control, operations: Operations, notes: RepeatedNotes) -> None:
        self._control = control
        self._operations = operations
        self._notes = notes
        self._settings = SettingsFile()
        self._followed: dict[str, _Followed] = {}

    def use_settings(self, settings: SettingsFile) -> None:
        """Use these settings to deploy versions from now on."""
        self._settings = settings

    def forget(self, name: str) -> None:
        """Forget a model's base directory, so that it is read from the beginning if it is configured again."""
        self._followed.pop(name, None)

    def looks(self, name: str) -> int:
        """Return how often a model's base directory was read and the result was applied."""
        watched = self._followed.get(name)
        return 0 if watched is None else watched.follows

    async def look(self, name: str) -> None:
        """Apply the last look at a directory, and begin the next one on a thread, so that storage that hangs blocks
        nothing else.
        """
        model = self._control.models.get(name)
        if model is None or model.policy is None:
            return
        watched = self._followed.get(name)
        if watched is None:
            watched = self._followed[name] = _Followed(self._directory(model.base_path or ""))
        if watched.looking is not None:
            if not watched.looking.done():
                return
            # The look is finished, even if applying its result fails.
            looked, watched.looking = watched.looking, None
            await self._follow(name, watched, looked.result())
            watched.follows += 1
        watched.looking = asyncio.create_task(asyncio.to_thread(watched.directory.look))

    def _directory(self, base_path: str) -> BaseDirectory | RemoteBaseDirectory:
        url = self._control.remote.base_place(base_path)
        return BaseDirectory(Path(base_path)) if url is None else RemoteBaseDirectory(url)

    async def _follow(
        self, name: str, watched: _Followed, found: Mapping[int, tuple[Path | StoreUrl, str]] | None
    ) -> None:
        model = self._control.models[name]
        if found is None:
            if not watched.missing:
                why = getattr(watched.directory, "error", None) or f"{model.base_path} cannot be read"
                self._notes.enter(name, f"{name}: {why}; the served versions stay")
            watched.missing = True
            return
        watched.missing = False
        self._note_folders(name, watched.directory)
        assert model.policy is not None
        wanted = choose_versions(model.policy, {number: stamp for number, (_, stamp) in found.items()}, model)
        # The largest number first, because the first version of a model becomes its baseline at once.
        for number in reversed(wanted.load):
            await self._attempt(name, number, found[number][0])
            if self._followed.get(name) is not watched:
                # The configuration has changed meanwhile.
                return
        self._operations.choose(name, wanted.chosen)
        for number in wanted.unload:
            self._operations.undeploy(name, number, by_policy=True)
        if wanted.follow is not None:
            self._operations.promote(name, wanted.follow)
        # Versions that are still being copied are not missing.
        missing = [number for number in wanted.missing if number not in watched.directory.seen]
        if missing:
            listed = ", ".join(str(path) for path in missing)
            self._notes.enter(name, f"{name}: version {listed} is configured but not in {model.base_path}")

    def _note_folders(self, name: str, directory: BaseDirectory | RemoteBaseDirectory) -> None:
        """Record once which folders of a base directory are not served, and whether none is."""
        for folder, why in directory.left_out.items():
            self._notes.enter(f"{name}/folder/{folder}", f"{name}: {directory.base / folder} {why}")
        if directory.empty:
            wanted = f"{directory.base / '1' / 'saved_model.pb'}"
            self._notes.enter(f"{name}/empty", f"{name}: no version in {directory.base}, expected one such as {wanted}")

    async def _attempt(self, name: str, number: int, folder: Path | StoreUrl) -> None:
        try:
            asked = self._settings.of(name).deployment(str(folder), number)
            await self._operations.deploy(name, asked, by_policy=True)
        except ProxyError as error:
            self._notes.enter(f"{name}/{number}", str(error))

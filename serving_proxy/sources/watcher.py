# SPDX-License-Identifier: Apache-2.0
"""Follows base directories and the configuration file that names them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.deploy.changes import Change, choose
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.deeprec import is_deeprec_config, parse_deeprec
from serving_proxy.deploy.deployment import Deployment
from serving_proxy.deploy.operations import Operations
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.deploy.version_policy import choose_versions
from serving_proxy.errors import ExhaustedError, NotFoundError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.gates.paths import resolved
from serving_proxy.records.models import Model, Note
from serving_proxy.records.states import GATED
from serving_proxy.sources.base_directory import BaseDirectory
from serving_proxy.sources.model_settings import SettingsFile, parse_settings
from serving_proxy.sources.models_config import ConfiguredModel, parse_file
from serving_proxy.sources.watched_file import WatchedFile

POLL_S = 1.0
# A folder counts once two looks have found it the same.
_LOOKS = 2
# Such as a full disk: what could not be done is tried again.
_PASSING = (ExhaustedError, UnavailableError)


@dataclass
class _Watched:
    directory: BaseDirectory
    looking: asyncio.Task[dict[int, tuple[Path, str]] | None] | None = None
    missing: bool = False
    follows: int = 0


class Watcher:
    """Deploys what a configuration names and directories hold."""

    def __init__(
        self,
        control: Control,
        operations: Operations,
        config: Path | None = None,
        settings: Path | None = None,
        single: ConfiguredModel | None = None,
        base: ModelSettings | None = None,
    ) -> None:
        self._settings_file = None if settings is None else WatchedFile(settings, "settings of models")
        # In the place of a configuration.
        self._single = single
        # Below what the file of settings says.
        self._base = base or ModelSettings()
        self._settings = SettingsFile()
        self._control = control
        self._operations = operations
        self._config = None if config is None else WatchedFile(config, "a models.config")
        self._directories: dict[str, _Watched] = {}
        self._told: dict[str, str] = {}

    async def load(self) -> None:
        """Read the configuration file for the first time.

        Raises
        ------
        ProxyError
            It cannot be read or applied.
        """
        self._use(SettingsFile())
        if self._settings_file is not None:
            text = await self._settings_file.read()
            self._use(parse_settings(text, str(self._settings_file.path)))
            self._settings_file.take(text)
        if self._single is not None:
            self.apply((self._single,), alone=True)
        if self._config is not None:
            text = await self._config.read()
            await self._apply_text(self._config.path, text)
            self._config.take(text)

    @property
    def settled(self) -> bool:
        """Whether all that was configured has been looked at, and is in `desired.json` or refused."""
        models = self._control.models.values()
        watched = [self._directories.get(one.name) for one in models if one.policy is not None]
        gated = any(version.state in GATED for one in models for version in one.versions.values())
        looked = (self._config is None or self._config.at_rest) and all(
            one is not None and one.follows >= _LOOKS for one in watched
        )
        return looked and not gated and self._control.told

    async def run(self) -> None:
        """Look at the file and the directories until the task is cancelled."""
        while True:
            with self._control.recording_faults("settings of models"):
                await self._follow_file(self._settings_file, "/settings", self._apply_settings)
            with self._control.recording_faults("configuration"):
                await self._follow_file(self._config, "", self._apply_change)
            for name in [one.name for one in self._control.models.values() if one.policy is not None]:
                # Such as a full disk; the next look tries again.
                with self._control.recording_faults(f"base path of {name}"):
                    await self._look(name)
            await asyncio.sleep(POLL_S)

    def apply(self, configured: Sequence[ConfiguredModel], kept: Collection[str] = (), alone: bool = False) -> None:
        """Make what was configured the whole of what comes from a configuration; models deployed by hand stay.

        Parameters
        ----------
        configured : sequence of ConfiguredModel
        kept : collection of str
            Models that stay as they are, as what the configuration says of them is refused.
        alone : bool
            A model that cannot be is refused alone, with an event; a base path that is not there is waited for.

        Raises
        ------
        ProxyError
            One of them cannot be, and is not refused alone: nothing was changed.
        """
        kept, possible = {*kept}, []
        for one in configured:
            try:
                self._check(one, alone)
                possible.append(one)
            except ProxyError as error:
                if not alone:
                    raise
                kept.add(one.name)
                self._tell(f"{one.name}/refused", str(error), one.name)
        configured = possible
        names = {one.name for one in configured} | kept
        for model in [one for one in self._control.models.values() if one.policy is not None and one.name not in names]:
            self._operations.undeploy(model.name, by_policy=True)
            # From now on as any model that was undeployed.
            left = choose(self._control.model(model.name), ()).model
            self._control.commit(Change(left.change(policy=None, base_path=None)))
            self._directories.pop(model.name, None)
        for one in configured:
            self._configure(one)

    def _check(self, one: ConfiguredModel, may_be_absent: bool) -> None:
        """Raise `ProxyError` if a model cannot be followed."""
        try:
            resolved(one.base_path, self._control.options.model_roots, "base_path")
        except NotFoundError:
            if not may_be_absent:
                raise
        model = self._control.models.get(one.name)
        if model is not None and model.policy is None and any(version.active for version in model.versions.values()):
            raise PreconditionError(f"model '{one.name}': was deployed by hand, expected it to be undeployed first")

    def _configure(self, one: ConfiguredModel) -> None:
        model = self._control.models.get(one.name) or Model(name=one.name)
        values = {"base_path": one.base_path, "policy": one.policy, "labels": one.labels}
        changed = model.change(**values)
        if changed != model:
            kind, message = "config", f"{one.name}: {one.policy.kind} versions of {one.base_path}"
            self._control.commit(Change(changed, (Note(kind=kind, message=message, model=one.name),)))
        if model.base_path != one.base_path:
            self._directories.pop(one.name, None)

    def looks(self, name: str) -> int:
        """Return how often a model's base directory was looked at, and what it showed acted upon."""
        watched = self._directories.get(name)
        return 0 if watched is None else watched.follows

    async def _look(self, name: str) -> None:
        """Act on the last look at a directory, and begin another: storage that hangs holds up nothing else."""
        model = self._control.models.get(name)
        if model is None or model.policy is None:
            return
        watched = self._directories.get(name)
        if watched is None:
            watched = self._directories[name] = _Watched(BaseDirectory(Path(model.base_path or "")))
        if watched.looking is not None:
            if not watched.looking.done():
                return
            # It is done with, whatever comes of it.
            looked, watched.looking = watched.looking, None
            await self._follow(name, watched, looked.result())
            watched.follows += 1
        watched.looking = asyncio.create_task(asyncio.to_thread(watched.directory.look))

    async def _follow(self, name: str, watched: _Watched, found: dict[int, tuple[Path, str]] | None) -> None:
        model = self._control.models[name]
        if found is None:
            if not watched.missing:
                self._tell(name, f"{name}: {model.base_path} cannot be read; what is served stays")
            watched.missing = True
            return
        watched.missing = False
        self._tell_of_folders(name, watched.directory)
        assert model.policy is not None
        wanted = choose_versions(model.policy, {number: stamp for number, (_, stamp) in found.items()}, model)
        # The largest first: the first one of a model is its baseline at once.
        for number in reversed(wanted.load):
            await self._attempt(name, number, found[number][0])
            if self._directories.get(name) is not watched:
                # Configured otherwise meanwhile.
                return
        self._operations.choose(name, wanted.chosen)
        for number in wanted.unload:
            self._operations.undeploy(name, number, by_policy=True)
        if wanted.follow is not None:
            self._operations.promote(name, wanted.follow)
        # Those that are being copied will be there.
        missing = [number for number in wanted.missing if number not in watched.directory.seen]
        if missing:
            listed = ", ".join(str(one) for one in missing)
            self._tell(name, f"{name}: version {listed} is wanted and not in {model.base_path}")

    def _tell_of_folders(self, name: str, directory: BaseDirectory) -> None:
        """Say once what lies in a base directory and is not served, and that nothing is."""
        for folder, why in directory.left_out.items():
            self._tell(f"{name}/folder/{folder}", f"{name}: {directory.base / folder} {why}")
        if directory.empty:
            wanted = f"{directory.base / '1' / 'saved_model.pb'}"
            self._tell(f"{name}/empty", f"{name}: no version in {directory.base}, expected one such as {wanted}")

    async def _attempt(self, name: str, number: int, folder: Path) -> None:
        try:
            asked = self._settings.of(name).deployment(str(folder), number)
            await self._operations.deploy(name, asked, by_policy=True)
        except ProxyError as error:
            self._tell(f"{name}/{number}", str(error))

    def _use(self, settings: SettingsFile) -> None:
        self._settings = settings.over(self._base)
        self._operations.use_defaults(self._settings.defaults)

    async def _follow_file(
        self, file: WatchedFile | None, subject: str, act: Callable[[Path, str], Awaitable[None]]
    ) -> None:
        """Act upon what a file holds by now, once that is at rest, and tell of what is wrong with it.

        Parameters
        ----------
        file : WatchedFile or None
        subject : str
            As `_tell` takes it.
        act : callable
            Takes the path and the text, and tells that they are in force.
        """
        if file is None:
            return
        text = None
        try:
            text = await file.look()
            if text is None:
                return
            await act(file.path, text)
        except _PASSING:
            # It is not taken, so the next look finds it again.
            raise
        except ProxyError as error:
            self._tell(subject, f"{error}; what was read before stays")
        if text is not None:
            file.take(text)

    async def _apply_settings(self, path: Path, text: str) -> None:
        """Give versions that are deployed the settings that the file has by now."""
        self._use(parse_settings(text, str(path)))
        # Now, for they are in force from here on, even if a full disk keeps them from what is deployed for a while.
        self._tell("/settings", f"{path}: read again")
        for model in [one for one in self._control.models.values() if one.policy is not None]:
            await self._give_settings(model)

    async def _give_settings(self, model: Model) -> None:
        settings = self._settings.of(model.name)
        for version in [one for one in model.versions.values() if one.active]:
            asked = settings.deployment(version.source, version.number)
            # How it was optimised is for good; the next version is made as the file says.
            asked = asked.model_copy(update={"optimize": version.optimize})
            try:
                await self._operations.deploy(model.name, asked, by_policy=True)
            except _PASSING:
                raise
            except ProxyError as error:
                self._tell(f"{model.name}/{version.number}", str(error))

    def _tell(self, subject: str, message: str, model: str | None = None) -> None:
        """Enter an event, once until there is another one to tell of the same.

        Parameters
        ----------
        subject : str
            What it is about: `ranking/3`, a model `ranking`, or of no model "" and "/settings".
        model : str or None
            Whose event it is; None: what stands before the first "/" of the subject.
        """
        if self._told.get(subject) != message:
            self._control.note("config", message, subject.partition("/")[0] if model is None else model)
            self._told[subject] = message

    async def _apply_change(self, path: Path, text: str) -> None:
        """Apply a configuration that is other than before."""
        if await self._apply_text(path, text):
            self._tell("", f"{path}: read again")

    async def _apply_text(self, path: Path, text: str) -> bool:
        """Apply a configuration, unless it asks for nothing: then say so, and return False."""
        if is_deeprec_config(text):
            found = parse_deeprec(text, str(path))
            asked = Deployment(source=found.folder, number=found.version, settings=found.settings)
            await self._operations.deploy(found.name or path.stem, asked)
            return True
        parsed = parse_file(text, str(path))
        if parsed is None:
            self._tell("", f"{path}: no model_config_list; what was read before stays")
            return False
        configured, refused = parsed
        for name, why in refused.items():
            self._tell(f"{name}/refused", why, name)
        self.apply(configured, kept=frozenset(refused), alone=True)
        return True

# SPDX-License-Identifier: Apache-2.0
"""Follow the configuration file and the base directories that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from serving_proxy.deploy.changes import Change, choose
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.deeprec import is_deeprec_config, parse_deeprec
from serving_proxy.deploy.deployment import Deployment
from serving_proxy.deploy.operations import Operations
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.errors import ExhaustedError, NotFoundError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.gates.paths import resolved
from serving_proxy.records.models import Model, Note
from serving_proxy.records.states import GATED
from serving_proxy.sources.base_directories import BaseDirectories
from serving_proxy.sources.model_settings import SettingsFile, parse_settings
from serving_proxy.sources.models_config import ConfiguredModel, parse_file
from serving_proxy.sources.repeated_notes import RepeatedNotes
from serving_proxy.sources.watched_file import WatchedFile

POLL_S = 1.0
# A folder counts once two looks have found the same content.
_LOOKS = 2
# Temporary failures, such as a full disk: they are tried again.
_PASSING = (ExhaustedError, UnavailableError)


class Watcher:
    """Deploys the models of a configuration from their base directories."""

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
        # The only model, instead of a configuration.
        self._single = single
        # Fallback of the defaults in the file of settings.
        self._base = base or ModelSettings()
        self._settings = SettingsFile()
        self._control = control
        self._operations = operations
        self._config = None if config is None else WatchedFile(config, "a models.config")
        self._notes = RepeatedNotes(control)
        self._directories = BaseDirectories(control, operations, self._notes)

    async def load(self) -> None:
        """Read the configuration file for the first time.

        Raises
        ------
        ProxyError
            It cannot be read or applied.
        """
        self._use_settings(SettingsFile())
        if self._settings_file is not None:
            text = await self._settings_file.read()
            self._use_settings(parse_settings(text, str(self._settings_file.path)))
            self._settings_file.take(text)
        if self._single is not None:
            self.apply((self._single,), alone=True)
        if self._config is not None:
            text = await self._config.read()
            await self._apply_text(self._config.path, text)
            self._config.take(text)

    @property
    def settled(self) -> bool:
        """Return whether every configured model has been looked at, and is in `desired.json` or refused."""
        models = self._control.models.values()
        gated = any(version.state in GATED for model in models for version in model.versions.values())
        looked = (self._config is None or self._config.at_rest) and all(
            self._directories.looks(model.name) >= _LOOKS for model in models if model.policy is not None
        )
        return looked and not gated and self._control.is_published

    async def run(self) -> None:
        """Look at the file and the directories until the task is cancelled."""
        while True:
            with self._control.recording_faults("settings of models"):
                await self._follow_file(self._settings_file, "/settings", self._apply_settings)
            with self._control.recording_faults("configuration"):
                await self._follow_file(self._config, "", self._apply_change)
            for name in [model.name for model in self._control.models.values() if model.policy is not None]:
                # An error, such as a full disk, is recorded; the next look tries again.
                with self._control.recording_faults(f"base path of {name}"):
                    await self._directories.look(name)
            await asyncio.sleep(POLL_S)

    def apply(self, configured: Sequence[ConfiguredModel], kept: Collection[str] = (), alone: bool = False) -> None:
        """Replace the configured models by these; models that were deployed by hand stay.

        Parameters
        ----------
        configured : sequence of ConfiguredModel
        kept : collection of str
            Models that stay as they are, because their part of the configuration is refused.
        alone : bool
            Refuse an invalid model alone, with an event, and wait for a base path that does not exist yet.

        Raises
        ------
        ProxyError
            A model is invalid and `alone` is false: nothing was changed.
        """
        kept, possible = {*kept}, []
        for wanted in configured:
            try:
                self._check(wanted, alone)
                possible.append(wanted)
            except ProxyError as error:
                if not alone:
                    raise
                kept.add(wanted.name)
                self._notes.enter(f"{wanted.name}/refused", str(error), wanted.name)
        configured = possible
        names = {wanted.name for wanted in configured} | kept
        for model in [
            model for model in self._control.models.values() if model.policy is not None and model.name not in names
        ]:
            self._operations.undeploy(model.name, by_policy=True)
            # From now on it is like any other model that was undeployed.
            left = choose(self._control.model(model.name), ()).model
            self._control.commit(Change(left.change(policy=None, base_path=None)))
            self._directories.forget(model.name)
        for wanted in configured:
            self._configure(wanted)

    def _check(self, wanted: ConfiguredModel, may_be_absent: bool) -> None:
        """Raise `ProxyError` if a model cannot be followed."""
        try:
            if self._control.remote.base_place(wanted.base_path) is None:
                resolved(wanted.base_path, self._control.options.model_roots, "base_path")
        except NotFoundError:
            if not may_be_absent:
                raise
        model = self._control.models.get(wanted.name)
        if model is not None and model.policy is None and any(version.active for version in model.versions.values()):
            raise PreconditionError(f"model '{wanted.name}': was deployed by hand, expected it to be undeployed first")

    def _configure(self, wanted: ConfiguredModel) -> None:
        model = self._control.models.get(wanted.name) or Model(name=wanted.name)
        values = {"base_path": wanted.base_path, "policy": wanted.policy, "labels": wanted.labels}
        changed = model.change(**values)
        if changed != model:
            kind, message = "config", f"{wanted.name}: {wanted.policy.kind} versions of {wanted.base_path}"
            self._control.commit(Change(changed, (Note(kind=kind, message=message, model=wanted.name),)))
        if model.base_path != wanted.base_path:
            self._directories.forget(wanted.name)

    def looks(self, name: str) -> int:
        """Return how often a model's base directory was read and the result was applied."""
        return self._directories.looks(name)

    def _use_settings(self, settings: SettingsFile) -> None:
        self._settings = settings.over(self._base)
        self._directories.use_settings(self._settings)
        self._operations.use_defaults(self._settings.defaults)

    async def _follow_file(
        self, file: WatchedFile | None, subject: str, act: Callable[[Path, str], Awaitable[None]]
    ) -> None:
        """Apply the content of a file once it is at rest, and record what is wrong with it.

        Parameters
        ----------
        file : WatchedFile or None
        subject : str
            As for `RepeatedNotes.enter`.
        act : callable
            Applies the text of a path, and records that it is in force.
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
            # The content is not marked as taken, so the next look finds it again.
            raise
        except ProxyError as error:
            self._notes.enter(subject, f"{error}; the earlier content stays in force")
        if text is not None:
            file.take(text)

    async def _apply_settings(self, path: Path, text: str) -> None:
        """Give the deployed versions the present settings of the file."""
        self._use_settings(parse_settings(text, str(path)))
        # Recorded now, because the settings are in force even if a full disk delays their use for deployed versions.
        self._notes.enter("/settings", f"{path}: read again")
        for model in [model for model in self._control.models.values() if model.policy is not None]:
            await self._give_settings(model)

    async def _give_settings(self, model: Model) -> None:
        settings = self._settings.of(model.name)
        for version in [version for version in model.versions.values() if version.active]:
            asked = settings.deployment(version.source, version.number)
            # The optimization of a version never changes; the next version is made according to the file.
            asked = asked.model_copy(update={"optimize": version.optimize})
            try:
                await self._operations.deploy(model.name, asked, by_policy=True)
            except _PASSING:
                raise
            except ProxyError as error:
                self._notes.enter(f"{model.name}/{version.number}", str(error))

    async def _apply_change(self, path: Path, text: str) -> None:
        """Apply a configuration that has changed."""
        if await self._apply_text(path, text):
            self._notes.enter("", f"{path}: read again")

    async def _apply_text(self, path: Path, text: str) -> bool:
        """Apply a configuration and return True; if it has no `model_config_list`, record that and return False."""
        if is_deeprec_config(text):
            found = parse_deeprec(text, str(path))
            asked = Deployment(source=found.folder, number=found.version, settings=found.settings)
            await self._operations.deploy(found.name or path.stem, asked)
            return True
        parsed = parse_file(text, str(path))
        if parsed is None:
            self._notes.enter("", f"{path}: no model_config_list; the earlier content stays in force")
            return False
        configured, refused = parsed
        for name, why in refused.items():
            self._notes.enter(f"{name}/refused", why, name)
        self.apply(configured, kept=frozenset(refused), alone=True)
        return True

# SPDX-License-Identifier: Apache-2.0
"""The operator's verbs: each change is checked and written, and a job continues it if it takes long."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_proxy.artifacts.warmups import WARMUPS_FEATURE, keep_copy
from serving_proxy.deploy import changes
from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.deeprec import parse_deeprec
from serving_proxy.deploy.deployment import Deployment, check_name, choose_number, deploy
from serving_proxy.deploy.epochs import check_epoch, follows_well
from serving_proxy.deploy.jobs import Job, Jobs
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.deploy.pipeline import DeployPipeline
from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError
from serving_proxy.experiments.traffic import to_weight
from serving_proxy.gates.fingerprint import stamp_of
from serving_proxy.gates.paths import check_tree, check_writable, resolved
from serving_proxy.gates.profile import check_profile
from serving_proxy.gates.saved_model import check_graph, check_live
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import GATED
from serving_proxy.system.cpus import parse_cpus
from serving_proxy.system.files import read_regular

_MOST_CONFIG_BYTES = 1024 * 1024
_LONGEST_RAMP_S = 366 * 86400.0


@dataclass(frozen=True)
class Deployed:
    """The result of `deploy`.

    Attributes
    ----------
    job : Job or None
        None: the version is there already.
    notes : tuple of str
        Options that have no effect.
    """

    version: int
    job: Job | None
    notes: tuple[str, ...] = ()


class Operations:
    """The operations that the API, the guard and the watchers call."""

    def __init__(self, control: Control, jobs: Jobs, pipeline: DeployPipeline) -> None:
        self._control = control
        self._jobs = jobs
        self._pipeline = pipeline
        self._defaults = ModelSettings()

    def use_defaults(self, defaults: ModelSettings) -> None:
        """Use these settings from now on to complete deployments that are made by hand."""
        self._defaults = defaults

    async def deploy(self, name: str, asked: Deployment, by_policy: bool = False) -> Deployed:
        """Deploy a version, or change the settings of one that is deployed.

        Raises
        ------
        ProxyError
            As in `serving_proxy.deploy.deployment.deploy`, or the folder does not exist or is not permitted.
        """
        check_name(name)
        # Storage may be slow, and the folder large.
        asked = await asyncio.to_thread(self._resolve, asked)
        model = self._control.models.get(name) or Model(name=name)
        if by_policy and model.policy is None:
            raise PreconditionError(f"{name}: is no longer configured, expected a model of the configuration")
        if model.policy is not None and not by_policy:
            raise PreconditionError(
                f"{name}: its versions come from {model.base_path}, expected the version in that directory"
            )
        before = model.versions.get(choose_number(model, asked))
        self._check_agents(asked.settings.warmup_file, before)
        follows = asked.settings.follow
        if follows is not None and before is not None and before.active and before.path is not None:
            check_live(Path(before.path))
        if not by_policy and (before is None or not before.active):
            asked = asked.model_copy(update={"settings": self._defaults.completed(asked.settings)})
        change, number = deploy(model, asked, self._control.taken(model), time.time())
        self._control.commit(change)
        version = change.model.versions[number]
        waits = version.state in GATED or not follows_well(self._control.hosts_for(name, number), name, version)
        job = self._pipeline.begin(name, number) if waits else None
        running = (job for job in self._jobs.running(name, number) if job.deployed_at == version.deployed_at)
        notes = _notes_without_effect(model, number, asked)
        if asked.given_profile is not None and self._control.options.cores == "off":
            notes += (f"{name}/{number}: the profile is stored, but has no effect without `serve --cores`",)
        return Deployed(number, job or next(running, None), notes)

    def undeploy(self, name: str, version: int | None = None, by_policy: bool = False) -> None:
        """Take out a version, or the whole model; requests in flight are still served."""
        model = self._control.model(name)
        if model.policy is not None and not by_policy:
            raise PreconditionError(
                f"{name}: its versions come from {model.base_path}, expected it to be removed from the configuration"
            )
        change = changes.undeploy(model, version, time.time())
        self._control.commit(change, urgent=not by_policy)
        for job in self._jobs.running(name, version):
            job.cancel()

    def traffic(self, name: str, percents: Mapping[str, float]) -> None:
        """Split the traffic between versions or labels; the share that is not named goes to the baseline."""
        model = self._control.model(name)
        weights: dict[int, int] = {}
        for text, percent in percents.items():
            number = version_of(model, text)
            if number in weights:
                raise InvalidError(f"{name}: version {number} is named twice, expected once")
            weights[number] = to_weight(percent)
        self._control.commit(changes.set_traffic(model, weights, self._control.taken(model)))

    def ramp(self, name: str, version: int, to: float, seconds: float) -> None:
        """Change a version's share to a percentage within some time."""
        if not 0 <= seconds <= _LONGEST_RAMP_S:
            raise InvalidError(f"ramp: {seconds:g} s, expected 0 to {_LONGEST_RAMP_S:g} s")
        model = self._control.model(name)
        self._control.commit(changes.start_ramp(model, version, to_weight(to), seconds, self._control.taken(model)))

    def promote(self, name: str, version: int) -> None:
        """Make a version the baseline once it is ready; the previous baseline stays warm."""
        self._commit_and_step(changes.promote(self._control.model(name), version))

    def choose(self, name: str, numbers: Iterable[int]) -> None:
        """Let the versions that a policy chooses serve requests that name them, whatever their share of the traffic."""
        self._control.commit(changes.choose(self._control.model(name), numbers))

    def rollback(self, name: str) -> None:
        """Send all requests to the last good baseline, or raise PreconditionError with the reason if nothing can be
        rolled back.

        A full disk does not prevent it.
        """
        self._commit_and_step(changes.roll_back(self._control.model(name)), urgent=True)

    def hold(self, name: str, epoch: int | None, version: int | None = None) -> None:
        """Serve an epoch of the timeline that a version follows, and stay there; None: follow the newest again.

        A full disk does not prevent it.

        Parameters
        ----------
        version : int or None
            None: the baseline.

        Raises
        ------
        PreconditionError
            The version follows no timeline, or a host that serves it no longer has the epoch.
        """
        model = self._control.model(name)
        number = model.baseline if version is None else version
        if number is None:
            raise PreconditionError(f"{name}: has no baseline, expected a deployed version")
        if epoch is not None:
            check_epoch(self._control.hosts, name, number, epoch)
        self._commit_and_step(changes.hold_epoch(model, number, epoch), urgent=epoch is not None)

    def pause(self, name: str, paused: bool = True) -> None:
        """Send all requests to the baseline, which a full disk does not prevent, or resume the experiments."""
        self._commit_and_step(changes.pause(self._control.model(name), paused), urgent=paused)

    def _commit_and_step(self, change: Change, urgent: bool = False) -> None:
        """Write a change and run the next step at once: what can be done now has been done when this returns."""
        if self._control.commit(change, urgent):
            self._control.step()

    def _resolve(self, asked: Deployment) -> Deployment:
        """Resolve the paths of a deployment."""
        remote = self._control.remote.place(asked.source)
        if remote is not None:
            return self._resolve_options(asked, None).model_copy(
                update={"source": str(remote), "stamp": self._control.remote.stamp(remote)}
            )
        asked = asked.model_copy(update={"source": self._control.remote.local_path(asked.source)})
        place = resolved(asked.source, self._control.options.model_roots)
        if os.path.isfile(place) and place.suffix == ".json":
            asked, place = self._deeprec(asked, place)
        elif not os.path.isdir(place):
            raise InvalidError(
                f"model {asked.source}: not a folder, expected a SavedModel's folder or a DeepRec Processor's JSON"
            )
        asked = self._resolve_options(asked, place)
        # Checked before the walk through the folder, which may contain anything.
        check_graph(place)
        # The source stays as it was written: a link such as `current` is another source once it points elsewhere.
        return asked.model_copy(update={"stamp": stamp_of(place)})

    def _resolve_options(self, asked: Deployment, place: Path | None) -> Deployment:
        """Resolve the paths in the options of a deployment.

        Parameters
        ----------
        place : Path or None
            The model's folder; None: it is in a store.
        """
        roots = self._control.options.model_roots
        settings = asked.settings
        if settings.warmup_file is not None:
            # Warm-up files that were made from request logs lie in the state directory, which is not under a model
            # root.
            allowed = (*roots, self._control.options.warmups) if roots else ()
            file = resolved(_relative_to(settings.warmup_file, place), allowed, "warm-up file")
            if not os.path.isfile(file):
                raise NotFoundError(f"warm-up file {file}: not there, or not a regular file, expected one")
            if self._control.has_machines:
                file = keep_copy(file, self._control.options.warmups)
            settings = settings.model_copy(update={"warmup_file": str(file)})
        checkpoints = settings.config.get("checkpoint_dir")
        if isinstance(checkpoints, str) and checkpoints:
            check_tree(resolved(checkpoints, roots, "checkpoint_dir"), roots)
        if settings.follow is not None:
            folder = resolved(self._control.remote.timeline(settings.follow), self._control.remote.roots(), "follow")
            if not os.path.isdir(folder):
                raise InvalidError(f"follow {settings.follow}: not a folder, expected a timeline of deltas")
            followed = self._control.remote.place(settings.follow)
            asked = asked.model_copy(update={"followed": None if followed is None else str(followed)})
            settings = settings.model_copy(update={"follow": str(folder)})
            if asked.optimize is None and place is not None:
                check_live(place)
        for key in ("timeline_path", "ev_storage_path"):
            place_of_key = settings.config.get(key)
            if isinstance(place_of_key, str) and place_of_key:
                check_writable(place_of_key, roots, key)
        if asked.given_profile is not None:
            file = resolved(self._control.remote.profile(asked.given_profile), self._control.remote.roots(), "profile")
            # The output of graph-tools is compared later, once it exists.
            check_profile(file, None if asked.optimize is not None else place)
            asked = asked.model_copy(update={"profile": str(file)})
        if settings.cpuset:
            for group in settings.cpuset.split(";"):
                parse_cpus(group, "cpuset")
        return asked.model_copy(update={"settings": settings})

    def _check_agents(self, file: str | None, before: Version | None) -> None:
        """Raise PreconditionError if a machine could not fetch a warm-up file that is new for the version."""
        if file is None or (before is not None and before.active and before.settings.warmup_file == file):
            return
        lacking = self._control.lacking(WARMUPS_FEATURE)
        if lacking:
            raise PreconditionError(f"warm-up file {file}: {lacking}, expected agents of a release that has it")

    def _deeprec(self, asked: Deployment, file: Path) -> tuple[Deployment, Path]:
        """Use a DeepRec Processor's JSON instead of a folder."""
        text = read_regular(file, _MOST_CONFIG_BYTES, "the JSON of a DeepRec Processor").decode("utf-8", "replace")
        found = parse_deeprec(text, str(file))
        own = asked.settings.model_dump(exclude_unset=True, exclude={"config"})
        config = {**found.settings.config, **asked.settings.config}
        settings = found.settings.model_copy(update={**own, "config": config})
        values: dict[str, Any] = {"source": found.folder, "settings": settings, "number": asked.number or found.version}
        return asked.model_copy(update=values), resolved(found.folder, self._control.options.model_roots)


def version_of(model: Model, text: str) -> int:
    """Return the version that a number or a label names.

    Raises
    ------
    NotFoundError
    """
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    if text in model.labels:
        return model.labels[text]
    raise NotFoundError(f"{model.name}: '{text[:80]}': unknown, expected a version or a label")


def _relative_to(file: str, folder: Path | None) -> str:
    """Return the path of a file, which may be relative to the model's folder."""
    return file if file.startswith("/") or folder is None else str(folder / file)


def _notes_without_effect(before: Model, number: int, asked: Deployment) -> tuple[str, ...]:
    if before.baseline not in {None, number} or not (asked.traffic or asked.shadow):
        return ()
    return (
        f"{before.name}/{number} is the baseline and serves the remaining requests: traffic and shadow have no effect",
    )

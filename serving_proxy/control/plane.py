# SPDX-License-Identifier: Apache-2.0
"""The control plane as a whole: makes its parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from serving_proxy.control.cleaning import Cleaner
from serving_proxy.control.observer import Observer
from serving_proxy.control.timelines import Timelines
from serving_proxy.control.views import StatusView, host_views
from serving_proxy.cores.given_profiles import GivenProfiles
from serving_proxy.cores.loop import Cores
from serving_proxy.cores.profiler import Profiler
from serving_proxy.cores.profiles import Profiles
from serving_proxy.counters.history import History
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.adopting import adopt_unknown
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.deploy.jobs import Jobs
from serving_proxy.deploy.op_warnings import warn_of_ops
from serving_proxy.deploy.operations import Operations
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.deploy.pipeline import DeployPipeline
from serving_proxy.deploy.views import job_view, model_view
from serving_proxy.fleet.loop import Fleet, known_machines
from serving_proxy.fleet.machines import Machines
from serving_proxy.fleet.states import MachineStates
from serving_proxy.guard.alerts import Alerts
from serving_proxy.guard.loop import Guard
from serving_proxy.hosts import LaunchOptions, Supervisor
from serving_proxy.replicas.driver import Driver
from serving_proxy.replicas.loop import ReplicaOptions, Replicas
from serving_proxy.replicas.scaling import make_scale
from serving_proxy.request_log.operations import RequestLogs
from serving_proxy.sources.availability import Availability
from serving_proxy.sources.model_repository import ModelRepository
from serving_proxy.sources.models_config import ConfiguredModel
from serving_proxy.sources.watcher import Watcher
from serving_proxy.store import Repository
from serving_proxy.version import version

log = logging.getLogger("serving_proxy.plane")


class Leading(Protocol):
    """The right to change what machines serve, which only one proxy has at a time."""

    @property
    def term(self) -> int:
        """Return a number that grows whenever another proxy gets the right."""

    def holds(self) -> bool:
        """Return whether this proxy still has the right."""


class Plane:
    """All parts of the control plane.

    Parameters
    ----------
    options, hosts, repository
    config, model_settings : Path, optional
        The configuration file and the file with settings of its models.
    single : ConfiguredModel, optional
        The only model, instead of a configuration.
    base_settings : ModelSettings, optional
        Defaults for what the file with settings leaves open.
    with_agents : bool
        Hosts are run on machines whose agents follow this proxy.
    leading : Leading, optional
        The right to change what machines serve, if another proxy may have it.
    replicas : (Driver, ReplicaOptions), optional
        The engine that places hosts, and how they are started.
    """

    def __init__(
        self,
        options: ControlOptions,
        hosts: LaunchOptions,
        repository: Repository,
        config: Path | None = None,
        model_settings: Path | None = None,
        single: ConfiguredModel | None = None,
        base_settings: ModelSettings | None = None,
        with_agents: bool = False,
        leading: Leading | None = None,
        replicas: tuple[Driver, ReplicaOptions] | None = None,
    ) -> None:
        # Agents of replicas hear of this proxy from the engine.
        machines = Machines(known_machines(repository), are_told=replicas is None) if with_agents else None
        term = None if leading is None else leading.term
        self.control = control = Control(options, repository, machines, term)
        self.leading = leading
        self.fleet = None if machines is None else Fleet(control, machines, MachineStates(control, self.leads))
        self.jobs = Jobs(repository, control.feed)
        self.pipeline = DeployPipeline(control, self.jobs)
        self.operations = Operations(control, self.jobs, self.pipeline)
        self.watcher = Watcher(control, self.operations, config, model_settings, single, base_settings)
        self.availability = Availability(control, self.watcher)
        self.model_repository = ModelRepository(control, self.operations, self.availability)
        # Otherwise a host would be ready at once, without any model.
        waits = (config, single) != (None, None) and not control.desired.has_models
        self.supervisor = Supervisor(control, hosts, lambda: waits and not self.watcher.settled)
        self.request_logs = RequestLogs(control, None if self.fleet is None else self.fleet.logs)
        self.cleaner = Cleaner(control, self.pipeline, self.request_logs)
        self.timelines = Timelines(control)
        self.alerts = None if options.webhook is None else Alerts(options.webhook)
        self.totals = totals = Totals()
        profiles = Profiles(control)
        self.replicas = None
        if replicas is not None and self.fleet is not None:
            driver, how = replicas
            scale = make_scale(control, totals, how)
            notices = control.note, self.fleet.remove, self.fleet.machines.begin
            self.replicas = Replicas(driver, how, scale, self.leads, *notices)
        self.guard = Guard(control, totals, self.alerts)
        self.history = History(totals)
        self.cores = Cores(control, totals, profiles)
        self.observer = Observer(control, totals, self.guard, self.history, self.cores)
        self.profiler = Profiler(control, self.jobs, profiles)
        self.given_profiles = GivenProfiles(control)
        self.closing = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaves_hosts = False
        self._started = time.time()

    @asynccontextmanager
    async def running(self, drain_limit_s: float, keep_hosts: bool = False) -> AsyncIterator[None]:
        """Run while the block runs; then stop jobs and, unless they are to be kept, the hosts that were started."""
        adopt_unknown(self.control)
        # Before anything is started, so that hosts find the versions that were deployed.
        self.control.step()
        self.pipeline.resume()
        await self.watcher.load()
        loops = [self.control.run(), self.supervisor.run(), self.watcher.run(), self.pipeline.run(), self.cleaner.run()]
        loops += [self.observer.run(), self.cores.run(), self.profiler.run(), self.given_profiles.run()]
        loops += [warn_of_ops(self.control), self.timelines.run()]
        if self.fleet is not None:
            loops += [self.fleet.run(), self.fleet.states.run()]
        if self.replicas is not None:
            loops.append(self.replicas.run())
        if self.alerts is not None:
            loops.append(self.alerts.run())
        tasks = [asyncio.create_task(loop) for loop in loops]
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            yield
        finally:
            self.closing.set()
            self.control.close()
            await self.jobs.close()
            for task in tasks[1:]:
                task.cancel()
            if not (keep_hosts or self._leaves_hosts):
                await self.supervisor.stop(drain_limit_s)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self, name: str | None, drained: bool) -> None:
        """Stop hosts after their last requests, or let them start again: of this proxy, or of machines.

        Parameters
        ----------
        name : str or None
            A host, or with agents a machine or `MACHINE/HOST`; None: all.

        Raises
        ------
        NotFoundError, PreconditionError, ExhaustedError, UnavailableError
        """
        if self.fleet is None:
            self.supervisor.drain(name, drained)
        else:
            self.fleet.drains.drain(name, drained)

    def leads(self) -> bool:
        """Return whether this proxy may change what hosts serve."""
        return self.leading is None or self.leading.holds()

    def leave_hosts(self) -> None:
        """Let hosts run on when the proxy ends, for example if its end was not requested."""
        self._leaves_hosts = True

    def status(self) -> StatusView:
        """Return the view of the whole control plane."""
        control = self.control
        models = [
            model_view(model, control.hosts, placement=control.placement) for _, model in sorted(control.models.items())
        ]
        machines = [] if self.fleet is None else self.fleet.views()
        return StatusView(
            version=version(),
            pid=os.getpid(),
            started=self._started,
            term=control.term,
            generation=control.desired.generation,
            fault=control.fault,
            draining=self.supervisor.draining or self.closing.is_set(),
            machines=machines,
            replicas=None if self.replicas is None else self.replicas.view(),
            hosts=host_views(self.supervisor.views(), machines),
            models=[model for model in models if model.versions],
            jobs=[job_view(job) for job in self.jobs.running()],
            last_event=control.last_event,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the proxy if a loop ends by an error; hosts run on, and a service manager can start the proxy again."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            log.critical("the control loop ended", exc_info=error)
            self.failed.set_exception(error)

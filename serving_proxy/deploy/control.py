# SPDX-License-Identifier: Apache-2.0
"""The state of the control plane and the loop that follows hosts.

Memory and store agree, because a change is written to the store first. `desired.json` is made from it; if the proxy is
killed between the two steps, the next proxy writes the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.desired_state import HostSettings
from serving_proxy.deploy.feature_rules import check_features
from serving_proxy.deploy.host_rules import Checker
from serving_proxy.deploy.model_store import RETRY_S, ModelStore
from serving_proxy.deploy.placing import SETTING, hosts_for, stored_placement
from serving_proxy.deploy.reconcile import Snapshot, reconcile, taken_by_others
from serving_proxy.deploy.remote_models import RemoteModels, StoreOptions
from serving_proxy.errors import ExhaustedError, NotFoundError, ProxyError, UnavailableError
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import BucketRange, Model, Note
from serving_proxy.records.placement import Placement
from serving_proxy.records.states import State
from serving_proxy.state_dir.actual import ActualFiles
from serving_proxy.state_dir.desired import DesiredFile
from serving_proxy.store import Repository
from serving_proxy.store.event_feed import EventFeed

log = logging.getLogger("serving_proxy.control")

STEP_S = 0.2
# Longest time that a ramp's clock advances in one step: it must not jump after the machine slept or the process was
# stopped.
_MOST_PASSED_S = 2.0
_GENERATION = "generation"


@dataclass(frozen=True)
class ControlOptions:
    """The options with which the control plane starts.

    Attributes
    ----------
    state_dir : Path
    model_roots : tuple of Path
        Resolved; empty: models may lie anywhere.
    host_settings : HostSettings
    webhook : str or None
        URL that alerts of the guard are posted to.
    cores : str
        When cores are divided: never (`off`), at each deployment (`plan`), or also once a second (`control`).
    cpus : frozenset of int
        The CPUs that hosts may use.
    allowed_ops : tuple of str
        Ops that every model may reach although they touch files, the process or the network.
    files_dir : Path or None
        Where files lie that the proxy makes, if other machines must reach them; None: in the state directory.
    stores : StoreOptions
        The store that models are put into, and this machine's copies of models in stores.
    """

    state_dir: Path
    model_roots: tuple[Path, ...] = ()
    host_settings: HostSettings = field(default_factory=HostSettings)
    webhook: str | None = None
    cores: Literal["off", "plan", "control"] = "off"
    cpus: frozenset[int] = frozenset()
    allowed_ops: tuple[str, ...] = ()
    stores: StoreOptions = field(default_factory=StoreOptions)
    files_dir: Path | None = None

    @property
    def _files(self) -> Path:
        return self.files_dir or self.state_dir

    @property
    def artifacts(self) -> Path:
        """Return the folder of optimized models."""
        return self._files / "artefacts"

    @property
    def tables(self) -> Path:
        """Return the folder of the tables that optimized models share."""
        return self._files / "tables"

    @property
    def profiles(self) -> Path:
        """Return the folder of the models' profiles, in the format of `cost-model profile`."""
        return self._files / "profiles"

    @property
    def warmups(self) -> Path:
        """Return the folder of warm-up files that were made from request logs."""
        return self._files / "warmups"


class HostSource(Protocol):
    """Hosts of other machines."""

    @property
    def settled(self) -> bool:
        """Return whether the hosts are known, so that what they report may be acted on."""

    @property
    def highest_order(self) -> tuple[int, int]:
        """Return the largest (term, generation) that a machine has accepted."""

    def read(self) -> tuple[HostSeen, ...]:
        """Return the hosts as they were reported last."""

    def lacking(self, feature: str) -> str:
        """Return which machine's agent lacks a feature; "": none does that reports."""


class Control:
    """Models, hosts and their desired state; used by the thread of the event loop only.

    Parameters
    ----------
    options : ControlOptions
    repository : Repository
    machines : HostSource, optional
        Hosts of other machines, besides those of the state directory.
    term : int or None
        Grows whenever another proxy begins to lead; None: there is no other proxy, and the term is that of the
        machines.
    """

    def __init__(
        self,
        options: ControlOptions,
        repository: Repository,
        machines: HostSource | None = None,
        term: int | None = None,
    ) -> None:
        self.options = options
        self.term = term or 1
        self._follows_terms = term is None
        self._machines = machines
        self._knows_order = False
        self.has_published = False
        self.repository = repository
        self.host_settings = options.host_settings
        self.remote = RemoteModels(options.state_dir, options.stores, options.model_roots)
        self.desired = DesiredFile(options.state_dir)
        self.actual = ActualFiles(options.state_dir)
        self.feed = EventFeed()
        self._store = ModelStore(options.state_dir, repository, self.feed)
        self.placement = stored_placement(repository)
        self.models = self._store.models
        self.checker = Checker(options.cpus)
        self.hosts: tuple[HostSeen, ...] = self._read_hosts()
        self.closing = False
        self._clocks: dict[str, dict[int, float]] = {}
        self._last = time.monotonic()
        self._retry_at = 0.0
        self._dirty = True
        self._wake = asyncio.Event()
        self._desired_errors: dict[str, str | None] = {}
        self._faults: dict[str, str] = {}
        # By model and baseline: the generation of `desired.json` in which it became the baseline.
        self._baselines: dict[tuple[str, int], int] = {}

    @property
    def fault(self) -> str | None:
        """Return why the state directory cannot be written to, or None if it can."""
        return self._store.fault

    @property
    def last_event(self) -> int:
        """Return the id of the last event."""
        return self._store.last_event

    @property
    def is_published(self) -> bool:
        """Return whether `desired.json` is up to date, or cannot be written."""
        return not self._dirty or self.fault is not None

    @property
    def has_machines(self) -> bool:
        """Return whether hosts run on machines whose agents follow this proxy."""
        return self._machines is not None

    def lacking(self, feature: str) -> str:
        """Return which machine's agent lacks a feature; "": none does that reports."""
        return "" if self._machines is None else self._machines.lacking(feature)

    def model(self, name: str) -> Model:
        """Return a model that was deployed at some time.

        Raises
        ------
        NotFoundError
        """
        found = self.models.get(name)
        if found is None:
            known = ", ".join(sorted(self.models)) or "none"
            raise NotFoundError(f"model '{name[:150]}': not deployed, expected one of {known}")
        return found

    def baseline_since(self, name: str) -> int | None:
        """Return the generation in which a model got its present baseline; None: it is not published yet.

        Hosts that have applied an earlier generation serve another baseline. If the baseline is from the time of an
        earlier proxy, this is the first generation that this proxy has published.

        Raises
        ------
        NotFoundError
        """
        baseline = self.model(name).baseline
        return None if baseline is None else self._baselines.get((name, baseline))

    def taken(self, model: Model) -> tuple[BucketRange, ...]:
        """Return the buckets that other models of its layer have."""
        return taken_by_others(self.models, model)

    def commit(self, change: Change, urgent: bool = False) -> bool:
        """Write a changed model and its notes, and return whether anything has changed.

        An urgent change takes effect on a full disk as well, and is written as soon as there is room.

        Raises
        ------
        InvalidError
            Hosts would refuse the desired state that results from the change.
        PreconditionError
            A live host lacks a feature that the change needs; an urgent change takes effect all the same.
        ExhaustedError
            The disk is full: nothing was changed.
        UnavailableError
            The proxy is shutting down.
        """
        before = self.models.get(change.model.name)
        if change.model == before and not change.notes:
            return False
        if self.closing:
            raise UnavailableError("the proxy is shutting down, expected a running proxy")
        if change.model != before:
            self.checker.check(before, change.model, self.host_settings)
            if not urgent:
                check_features(self.hosts, self.placement, before, change.model, self.host_settings)
        if urgent:
            self._store.save_urgently([change.model], change.notes)
        else:
            self._store.save([change.model], change.notes)
        self._wake_up()
        if before is not None and before.ramps != change.model.ramps:
            self._clocks.pop(change.model.name, None)
        return True

    def store(self, models: Iterable[Model], notes: Sequence[Note] = ()) -> None:
        """Write models and events to the store, then to memory, and wake the control loop."""
        self._store.save(models, notes)
        self._wake_up()

    def _wake_up(self) -> None:
        """Run the next step at once, and write `desired.json` again if its content has changed."""
        self._dirty = True
        self._wake.set()

    def place(self, placement: Placement | None, notes: Sequence[Note] = ()) -> None:
        """Write which machines are to have which models, and run the next step at once; None: all have all.

        Raises
        ------
        ExhaustedError
            The disk is full: nothing was changed.
        UnavailableError
            The proxy is shutting down.
        """
        if self.closing:
            raise UnavailableError("the proxy is shutting down, expected a running proxy")
        value = None if placement is None else placement.model_dump(mode="json", exclude_defaults=True)
        self._store.save([], notes, {SETTING: value})
        self.placement = placement
        self._wake_up()

    def hosts_for(self, name: str, number: int) -> Sequence[HostSeen]:
        """Return the hosts that are to have a version."""
        return hosts_for(self.hosts, self.placement, self.models[name], number)

    def note(self, kind: str, message: str, model: str | None = None, version: int | None = None) -> None:
        """Record an event that changes nothing; if the disk is full, log it instead of raising an error."""
        try:
            self.store([], [Note(kind=kind, message=message, model=model, version=version)])
        except ProxyError as error:
            log.error("%s (not recorded: %s)", message, error)

    @contextlib.contextmanager
    def recording_faults(self, what: str) -> Iterator[None]:
        """Record an error of the block once until it changes, so that it does not end the loop that runs the block."""
        try:
            yield
        except Exception as error:
            said = f"{what}: {error}" if isinstance(error, ProxyError) else f"{what}: {type(error).__name__}: {error}"
            if self._faults.get(what) != said:
                self._faults[what] = said
                log.exception(what)
                self.note("fault", f"{said}; the proxy tries again")
        else:
            self._faults.pop(what, None)

    def pin(self, cpusets: dict[str, dict[str, str]], limits: dict[str, int]) -> None:
        """Set CPUs of versions, by host, and limits; others use their own settings, or all CPUs and no limit."""
        self.host_settings = self.host_settings.model_copy(update={"cpusets": cpusets, "limits": limits})
        self._wake_up()

    def drain(self, hosts: Iterable[str]) -> None:
        """Set which hosts of machines are drained (`HostSettings.drained`)."""
        self.host_settings = self.host_settings.model_copy(update={"drained": tuple(sorted(set(hosts)))})
        self._wake_up()

    def close(self) -> None:
        """Refuse all further changes, because the proxy is shutting down."""
        self.closing = True

    def forget(self, name: str) -> None:
        """Remove a model that has no versions left."""
        self._store.remove(name)
        self._dirty = True

    async def run(self) -> None:
        """Follow the hosts until the task is cancelled."""
        while True:
            with self.recording_faults("control loop"):
                self.step()
            # Not `wait_for`, which may swallow the cancellation if the event is set at the same moment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await self._wake.wait()
            self._wake.clear()

    def step(self) -> None:
        """Read the hosts' reports, move every model one step forward, and write `desired.json` if it has changed."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        self._run_clocks(min(passed, _MOST_PASSED_S))
        hosts = self._read_hosts()
        if [_without_counters(host) for host in hosts] != [_without_counters(host) for host in self.hosts]:
            self._dirty = True
        self.hosts = hosts
        self._note_host_faults()
        if self._store.check_room(now):
            self._wake_up()
        if self._machines is not None and not self._learn_order(self._machines):
            return
        if (now < self._retry_at and not self._store.has_unsaved) or not (self._dirty or self._clocks):
            return
        try:
            self._reconcile()
        except (ExhaustedError, UnavailableError) as error:
            self._retry_at = now + RETRY_S
            self._store.hold(error)

    def _read_hosts(self) -> tuple[HostSeen, ...]:
        return self.actual.read() if self._machines is None else self.actual.read() + self._machines.read()

    def _learn_order(self, machines: HostSource) -> bool:
        """Return whether the machines are known; what they follow is then older than this proxy's next state."""
        if not machines.settled:
            return False
        if not self._knows_order:
            stored = self.repository.setting(_GENERATION)
            self.desired.continue_after(stored if isinstance(stored, int) else 0)
            self._knows_order = True
        highest = machines.highest_order
        if self._follows_terms and highest > (self.term, self.desired.generation):
            # A proxy that has lost its state; without it, all machines would refuse what it wants.
            self.term = max(self.term, highest[0])
            self.desired.continue_after(highest[1])
            # Nobody knows which baselines machines have since.
            self._baselines.clear()
            self._dirty = True
        return True

    def _reconcile(self) -> None:
        snapshot = Snapshot(self.models, self.hosts, time.time(), self._clocks, self.host_settings, self.placement)
        plan = reconcile(snapshot)
        self._dirty = bool(plan.changed)
        if plan.changed:
            for name, model in plan.changed.items():
                if model.ramps != self.models[name].ramps:
                    self._clocks.pop(name, None)
            save = self._store.save_urgently if self._store.has_unsaved else self._store.save
            save(plan.changed.values(), plan.notes)
            self._wake_up()
        known = max((host.generation for host in self.hosts), default=0)
        self._store_generation(self.desired.next_generation(plan.desired, known))
        if self.desired.write(plan.desired, known) or not self.has_published:
            log.info("desired.json written", extra={"generation": self.desired.generation})
            self.has_published = True
            baselines = [(name, entry["baseline"]) for name, entry in plan.desired["models"].items()]
            self._baselines = {key: self._baselines.get(key, self.desired.generation) for key in baselines}
            self.feed.changed()

    def _store_generation(self, generation: int | None) -> None:
        """Remember a generation before machines can see it, so that another proxy continues after it."""
        if self._machines is not None and generation is not None:
            # On a full disk, what is urgent is published all the same.
            with contextlib.suppress(ExhaustedError):
                self.repository.set_setting(_GENERATION, generation)

    def _run_clocks(self, passed: float) -> None:
        """Advance the clocks of ramps whose versions are ready, except for models that are paused."""
        for name, model in self.models.items():
            if not model.ramps or model.paused:
                self._clocks.pop(name, None)
                continue
            clocks = self._clocks.setdefault(name, {})
            for ramp in model.ramps:
                if model.versions[ramp.version].state == State.READY:
                    clocks[ramp.version] = clocks.get(ramp.version, 0.0) + passed

    def _note_host_faults(self) -> None:
        """Record once that a host refuses `desired.json`."""
        for host in self.hosts:
            if host.desired_error != self._desired_errors.get(host.name):
                self._desired_errors[host.name] = host.desired_error
                if host.desired_error:
                    self.note("host", f"{host.name}: {host.desired_error}")


def _without_counters(host: HostSeen) -> HostSeen:
    """Return what a host reports of its versions, without its counters."""
    return replace(host, stats={}, counted_at=0.0)

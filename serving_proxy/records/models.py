# SPDX-License-Identifier: Apache-2.0
"""Immutable records of models, as the store keeps them.

Weights are hundredths of a percent everywhere inside; percentages are used only in what users see.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.states import ACTIVE, SERVED, State

Weight = Annotated[int, Field(ge=0, le=10_000)]
VersionNumber = Annotated[int, Field(ge=1, le=2**63 - 1)]
Epoch = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Record(BaseModel):
    """Parent of all records."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Batching(Record):
    """The batching of a version's requests."""

    model_config = ConfigDict(strict=True)

    mode: Literal["off", "zero_wait", "timed"] = "off"
    max_rows: Annotated[int, Field(ge=1, le=2**24)] = 256
    max_wait_us: Annotated[int, Field(ge=0, le=10_000_000)] = 1000


class Limits(Record):
    """The largest numbers of a version's requests that wait, and that wait or run."""

    model_config = ConfigDict(strict=True)

    max_queue: Annotated[int, Field(ge=1, le=16_777_216)] = 1000
    max_in_flight: Annotated[int, Field(ge=1, le=16_777_216)] | None = None


class Tables(Record):
    """Where a version's tables are kept.

    Attributes
    ----------
    memory : str or None
        Memory of the indexes and caches of tiered tables, such as "4GB".
    """

    model_config = ConfigDict(strict=True)

    tier: Literal["mapped", "tiered", "resident"] = "mapped"
    memory: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?[KMGT]B$", max_length=32)] | None = None

    @model_validator(mode="after")
    def _check_memory(self) -> Tables:
        if (self.tier == "tiered") != (self.memory is not None):
            raise ValueError(
                f"memory is set, expected nothing: the tier is {self.tier}"
                if self.memory is not None
                else "memory is missing, expected the memory of tiered tables, such as 4GB"
            )
        return self


class Settings(Record):
    """The settings with which a version is run, as in `desired.json`.

    Attributes
    ----------
    follow : str or None
        Folder of the timeline whose deltas change the version while it is served.
    """

    config: dict[str, Any] = Field(default_factory=dict)
    warmup_file: str | None = None
    cpuset: str | None = None
    batching: Batching | None = None
    tables: Tables | None = None
    limits: Limits | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    follow: str | None = None


class VersionOptions(Record):
    """The options of a version that an operator sets, as its record keeps them.

    Attributes
    ----------
    optimize : str or None
        Precision to optimize it with; None: it is served as it is.
    slo_p99_ms : float or None [ms]
        Its SLO.
    profile : str or None
        Its profile for the cost model, as the operator gave it.
    allowed_ops : tuple of str
        Ops that touch files, the process or the network, and that the operator permits it.
    followed : str or None
        URL of its timeline in a store, which is copied into the folder that its settings name.
    """

    settings: Settings = Settings()
    optimize: str | None = None
    other_signature: bool = False
    slo_p99_ms: float | None = None
    profile: str | None = None
    allowed_ops: tuple[str, ...] = ()
    followed: str | None = None


class Version(VersionOptions):
    """One version of a model.

    Attributes
    ----------
    source : str
        The folder or URL that the operator named.
    stamp : str
        Changes if its files change.
    path : str or None
        The folder that hosts load, links resolved; None until the version has passed the gates.
    reason : str
        Why it failed, what it waits for, or what it lacks although it is ready.
    failure : str
        Status of the reason if the proxy itself refused the version, otherwise "".
    since, deployed_at : float [s since 1970]
    held : bool
        Loaded and warm, but without traffic: the last good version, or one that was rolled back.
    chosen : bool
        The version policy of its model chooses it: it serves requests that name it, whatever share it has.
    rejected : bool
        It was rolled back: only an operator, and no policy, can make it the baseline again.
    shadow : int
        Share of the baseline's requests that are mirrored to it.
    signatures : dict or None
        In the form of `serving_proxy.gates.saved_model`.
    sha256 : str or None
        Hash of all files that are served.
    seal : str or None
        Hash of their names, sizes and times when `sha256` was computed; hosts read the files again if it differs.
    ops : tuple of str or None
        Ops that touch files, the process or the network, and that it reaches; None: it was deployed before ops were
        checked.
    epoch : int or None
        The epoch of its timeline at which it is held; None: the newest one.
    needs : tuple of str
        The features that a host must have to serve it (`serving_proxy.records.features`), except for keys of its entry.
    stored : str or None
        URL of what is served, in a store that other machines can read; None: it is in none.
    """

    number: VersionNumber
    source: str
    stamp: str = ""
    path: str | None = None
    state: State = State.NEW
    reason: str = ""
    failure: str = ""
    since: float = 0.0
    deployed_at: float = 0.0
    held: bool = False
    chosen: bool = False
    rejected: bool = False
    shadow: Weight = 0
    signatures: dict[str, Any] | None = None
    sha256: str | None = None
    seal: str | None = None
    bytes: int | None = None
    ops: tuple[str, ...] | None = None
    epoch: Epoch | None = None
    needs: tuple[str, ...] = ()
    stored: str | None = None

    @property
    def active(self) -> bool:
        """Return whether it is deployed: ready, or on its way to be."""
        return self.state in ACTIVE

    @property
    def desired(self) -> bool:
        """Return whether `desired.json` names it: a host that failed to load it may try again."""
        return self.state in SERVED or (self.state == State.FAILED and self.path is not None)

    @property
    def refused(self) -> bool:
        """Return whether it failed before it was in `desired.json`."""
        return self.state == State.FAILED and self.path is None


class BucketRange(Record):
    """The buckets [offset, offset + weight) of a layer, whose requests go to a version."""

    version: VersionNumber
    offset: Annotated[int, Field(ge=0, lt=10_000)]
    weight: Annotated[int, Field(ge=1, le=10_000)]

    @property
    def end(self) -> int:
        """Return the bucket after the last one."""
        return self.offset + self.weight


class Ramp(Record):
    """A weight that changes from `start` to `target` within `seconds`, of which `elapsed` have passed."""

    version: VersionNumber
    start: Weight
    target: Weight
    seconds: Annotated[float, Field(gt=0)]
    elapsed: Annotated[float, Field(ge=0)] = 0.0


class RequestLog(Record):
    """The share of the requests that hosts log, in hundredths of a percent, and how much of the log they keep."""

    sample: Annotated[int, Field(ge=1, le=10_000)]
    max_bytes: Annotated[int, Field(ge=4096, le=2**40)] = 16 * 1024 * 1024
    max_files: Annotated[int, Field(ge=2, le=1000)] = 8


class PolicyKind(StrEnum):
    """Kind of a version policy: which versions of a base directory are served."""

    LATEST = "latest"
    SPECIFIC = "specific"
    ALL = "all"


class Policy(Record):
    """A version policy, as in TensorFlow Serving's configuration."""

    kind: PolicyKind = PolicyKind.LATEST
    count: Annotated[int, Field(ge=1)] = 1
    versions: tuple[VersionNumber, ...] = ()


class Model(Record):
    """A model: its versions, and which requests each of them gets.

    Attributes
    ----------
    base_path, policy
        Set if the versions come from a base directory.
    baseline : int or None
        Serves the requests that no arm selects.
    candidate : int or None
        Becomes the baseline once it is ready.
    going_back : bool
        The candidate is the last good version: the baseline that it replaces is rejected.
    last_good : int or None
        The baseline before this one, kept warm; after a rollback the baseline itself.
    labels : dict
        Names of versions, as the operator wants them.
    published : dict
        The names that hosts have: a name moves to a version once that is ready.
    layer : str or None
        Experiments of one layer exclude each other; None: the model's own layer.
    key_input : str or None
        Input whose value routes a request without a routing key.
    paused : bool
        The kill switch: everything goes to the baseline.
    guard : GuardSettings
    request_log : RequestLog or None
        None: no requests are logged.
    """

    name: str
    base_path: str | None = None
    policy: Policy | None = None
    settings: Settings = Settings()
    baseline: VersionNumber | None = None
    candidate: VersionNumber | None = None
    going_back: bool = False
    last_good: VersionNumber | None = None
    labels: dict[str, int] = Field(default_factory=dict)
    published: dict[str, int] = Field(default_factory=dict)
    layer: str | None = None
    key_input: str | None = None
    paused: bool = False
    guard: GuardSettings = GuardSettings()
    request_log: RequestLog | None = None
    arms: tuple[BucketRange, ...] = ()
    ramps: tuple[Ramp, ...] = ()
    versions: dict[int, Version] = Field(default_factory=dict)

    @property
    def layer_name(self) -> str:
        """Return its layer's name."""
        return self.layer or self.name

    @property
    def weights(self) -> dict[int, int]:
        """Return the weight of each version with arms, in hundredths of a percent."""
        found: dict[int, int] = {}
        for arm in self.arms:
            found[arm.version] = found.get(arm.version, 0) + arm.weight
        return found

    def with_version(self, version: Version) -> Model:
        """Return the model with one version added or changed."""
        versions = dict(sorted({**self.versions, version.number: version}.items()))
        return self.model_copy(update={"versions": versions})

    def change(self, **values: Any) -> Model:
        """Return the model with some fields changed."""
        return self.model_copy(update=values)


class Note(Record):
    """An event for the event log."""

    kind: str
    message: str
    model: str | None = None
    version: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)

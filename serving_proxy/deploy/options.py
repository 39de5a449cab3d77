# SPDX-License-Identifier: Apache-2.0
"""The options of a deployment, declared once for the API, the client and the command line.

Each option is declared here with its range and the help text of its command line. An option that changes how a version
is run is also a field of `Settings` or of `VersionOptions` with the same name, which hosts and the store use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_proxy.deploy.deployment import Deployment
from serving_proxy.experiments.traffic import to_weight
from serving_proxy.gates.ops import check_allowed
from serving_proxy.records.models import Batching, Limits, Settings, Tables, VersionNumber
from serving_proxy.records.option import CliGroup, CliOption

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Place = Annotated[str, Field(min_length=1, max_length=4096)]
Op = Annotated[str, Field(max_length=128)]

# Given instead of CPUs: removes the CPUs of an earlier deployment.
_ANY_CPUS = "auto"
# Given instead of a timeline: removes the timeline of an earlier deployment.
_FOLLOW_NONE = "none"


class CommonOptions(BaseModel):
    """The options for making and running a version that both `deploy` and a configuration accept."""

    model_config = ConfigDict(extra="forbid", strict=True)

    optimize: Annotated[bool, CliOption("", "Optimize the model with graph-tools first, and verify the result.")] = (
        False
    )
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "int8"],
        CliOption(
            "auto|fp32|bf16|int8",
            "Precision of the dense layers of an optimized model; auto: int8 only if --warmup names recorded requests.",
        ),
    ] = "auto"
    slo_p99_ms: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        CliOption("MS", "SLO of the version: the largest p99 latency."),
    ] = None
    warmup: Annotated[
        Place | None,
        CliOption("FILE|last", "Recorded requests for the warm-up; last: those of the request log.", word="last"),
    ] = None
    config: Annotated[
        dict[str, Any] | None, CliOption("JSON|@FILE", "Session settings, which configuration.md describes.")
    ] = None
    cpuset: Annotated[
        Place | None,
        CliOption(
            "LIST",
            "CPUs of the version, with a group for each session, such as 0-1;2-3; auto: chosen by the proxy if it "
            "divides cores, else those of the host.",
        ),
    ] = None
    batching: Annotated[
        Batching | None,
        CliGroup(
            {
                "mode": CliOption("off|zero_wait|timed", "How requests are batched.", name="batching"),
                "max_rows": CliOption("N", "Largest number of rows in a batch."),
                "max_wait_us": CliOption("US", "Longest time that a timed batch waits for requests."),
            }
        ),
    ] = None
    tables: Annotated[
        Tables | None,
        CliGroup(
            {
                "tier": CliOption(
                    "mapped|tiered|resident",
                    "Where its tables are kept; tiered: larger than memory; resident: in memory that needs no files.",
                ),
                "memory": CliOption("SIZE", "Memory of tiered tables, such as 4GB."),
            }
        ),
    ] = None
    limits: Annotated[
        Limits | None,
        CliGroup(
            {
                "max_queue": CliOption("N", "Largest number of requests that wait."),
                "max_in_flight": CliOption("N", "Largest number of requests that wait or run."),
            }
        ),
    ] = None
    priority: Annotated[
        Annotated[int, Field(ge=-1000, le=1000)] | None,
        CliOption("N", "Under overload, requests of versions with lower priority are refused first."),
    ] = None
    follow: Annotated[
        Place | None,
        CliOption(
            "TIMELINE|none",
            "Directory of deltas that change the version while it is served; none: it no longer follows.",
            word=_FOLLOW_NONE,
        ),
    ] = None
    other_signature: Annotated[bool, CliOption("", "Permit a signature that differs from the baseline's.")] = False
    allow_ops: Annotated[
        list[Op],
        Field(max_length=200),
        CliOption("OP", "Permit an op that touches files, the process or the network; repeatable.", name="allow-op"),
    ] = []

    def settings(self) -> Settings:
        """Return the settings that are given; the others stay unset in the record."""
        given = {name: getattr(self, name) for name in Settings.model_fields if name in type(self).model_fields}
        given["warmup_file"] = self.warmup
        given = {name: value for name, value in given.items() if value is not None}
        if self.cpuset == _ANY_CPUS:
            given["cpuset"] = None
        if self.follow == _FOLLOW_NONE:
            given["follow"] = None
        return Settings(**given)

    def _deployment(self, source: str, number: int | None, settings: Settings, **weights: int | None) -> Deployment:
        own = {name: getattr(self, name) for name in Deployment.model_fields if name in type(self).model_fields}
        derived: dict[str, Any] = {
            "source": source,
            "number": number,
            "settings": settings,
            "optimize": self.precision if self.optimize else None,
            "allowed_ops": check_allowed(self.allow_ops, "allow_ops"),
        }
        return Deployment(**{**own, **derived, **weights})


class DeployOptions(CommonOptions):
    """The options of `deploy`; shares are in percent, and options that are not given keep their values."""

    version: Annotated[
        VersionNumber | None,
        CliOption(
            "N",
            "Version number; by default the name of the directory if that is a number, otherwise the next number.",
            minimum=1,
        ),
    ] = None
    traffic: Annotated[
        Percent | None, CliOption("PERCENT", "Percentage of the traffic that the version gets once it is ready.")
    ] = None
    shadow: Annotated[
        Percent | None,
        CliOption("PERCENT", "Percentage of the baseline's requests to mirror.", name="shadow-percent"),
    ] = None
    profile: Annotated[
        Place | None,
        CliOption(
            "FILE|auto",
            "Profile of the version, written by cost-model profile; auto: the proxy measures it.",
            word="auto",
        ),
    ] = None
    labels: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=64),
        CliOption("LABEL", "Name by which requests can select the version; repeatable.", name="label"),
    ] = []
    layer: Annotated[
        Annotated[str, Field(max_length=128)] | None,
        CliOption("LAYER", "Layer of the experiment; experiments in one layer do not share users."),
    ] = None
    key_input: Annotated[
        Annotated[str, Field(max_length=1024)] | None,
        CliOption("INPUT", "Model input whose value routes requests that have no routing key."),
    ] = None

    def deployment(self, source: str) -> Deployment:
        """Return the deployment that the control plane is to make."""
        shares = {"traffic": self.traffic, "shadow": self.shadow}
        weights = {name: None if percent is None else to_weight(percent) for name, percent in shares.items()}
        return self._deployment(source, self.version, self.settings(), **weights)


class ModelSettings(CommonOptions):
    """The options of a model in a configuration."""

    model_config = ConfigDict(frozen=True)

    def deployment(self, source: str, number: int) -> Deployment:
        """Return the deployment of a version; settings that are not given are reset to their defaults."""
        said = self.settings()
        every = Settings(**{name: getattr(said, name) for name in Settings.model_fields})
        return self._deployment(source, number, every)

    def completed(self, settings: Settings) -> Settings:
        """Return an operator's settings, with these for sessions, batching and limits if they were not given."""
        own: dict[str, Any] = {"config": {**self.config, **settings.config}} if self.config else {}
        for field in ("batching", "limits"):
            value = getattr(self, field)
            if value is not None and field not in settings.model_fields_set:
                own[field] = value
        return settings.model_copy(update=own)

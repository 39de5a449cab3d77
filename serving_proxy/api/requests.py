# SPDX-License-Identifier: Apache-2.0
"""Bodies of the verbs, and what they are answered with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_proxy.control.views import JobView, ModelView, View
from serving_proxy.deploy.deployment import Deployment
from serving_proxy.experiments.traffic import to_weight
from serving_proxy.gates.ops import check_allowed
from serving_proxy.records.models import Batching, Limits, Settings, VersionNumber

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Precision = Literal["auto", "fp32", "bf16"]


class Body(BaseModel):
    """Parent of all bodies: what is not known is refused, and 0 is not false."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DeployBody(Body):
    """A version to deploy; shares are in percent."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    version: VersionNumber | None = None
    optimize: bool = False
    precision: Precision = "auto"
    traffic: Percent | None = None
    shadow: Percent | None = None
    slo_p99_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    warmup: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    config: dict[str, Any] | None = None
    cpuset: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    batching: Batching | None = None
    limits: Limits | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    labels: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] = []
    layer: Annotated[str, Field(max_length=128)] | None = None
    key_input: Annotated[str, Field(max_length=1024)] | None = None
    other_signature: bool = False
    allow_ops: Annotated[list[Annotated[str, Field(max_length=128)]], Field(max_length=200)] = []

    def deployment(self) -> Deployment:
        """Return what the control plane is asked for."""
        given = {name: getattr(self, name) for name in ("config", "cpuset", "batching", "limits", "priority")}
        settings = {name: value for name, value in {**given, "warmup_file": self.warmup}.items() if value is not None}
        if self.cpuset == "auto":
            # Said, and none: what an operator chose before ends.
            settings["cpuset"] = None
        return Deployment(
            source=self.path,
            number=self.version,
            settings=Settings(**settings),
            optimize=self.precision if self.optimize else None,
            other_signature=self.other_signature,
            slo_p99_ms=self.slo_p99_ms,
            profile=self.profile,
            traffic=None if self.traffic is None else to_weight(self.traffic),
            shadow=None if self.shadow is None else to_weight(self.shadow),
            labels=tuple(self.labels),
            layer=self.layer,
            key_input=self.key_input,
            allowed_ops=check_allowed(self.allow_ops, "allow_ops"),
        )


class UndeployBody(Body):
    """A version to take out; none: the whole model."""

    version: VersionNumber | None = None


class TrafficBody(Body):
    """Percent by version or label; what is not named goes to the baseline."""

    weights: Annotated[dict[Annotated[str, Field(max_length=64)], Percent], Field(max_length=1000)]


class RampBody(Body):
    """A share that is to be reached after some time."""

    version: VersionNumber
    to: Percent
    over_s: Annotated[float, Field(ge=0, le=366 * 86400, allow_inf_nan=False)]


class PromoteBody(Body):
    """The version that is to be the baseline."""

    version: VersionNumber


class PauseBody(Body):
    """Whether experiments are paused."""

    paused: bool = True


class DrainBody(Body):
    """Hosts to drain, or to start again; none: all of them."""

    host: Annotated[str, Field(max_length=128)] | None = None
    drain: bool = True


class DeployAnswer(View):
    """The version that was deployed, and the job that carries it on."""

    version: int
    job: JobView | None
    notes: list[str]
    model: ModelView


class ReloadAnswer(View):
    """Models that come from the configuration now."""

    models: list[str]


class Done(View):
    """The model that something was done to."""

    model: str

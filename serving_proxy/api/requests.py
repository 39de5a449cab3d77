# SPDX-License-Identifier: Apache-2.0
"""Bodies of the verbs, and what they are answered with."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving_proxy.deploy.options import DeployOptions, Percent, Place
from serving_proxy.deploy.views import JobView, ModelView
from serving_proxy.records.models import VersionNumber
from serving_proxy.records.view import View


class Body(BaseModel):
    """Parent of all bodies: what is not known is refused, and 0 is not false."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DeployBody(DeployOptions):
    """A version to deploy; shares are in percent."""

    path: Place


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

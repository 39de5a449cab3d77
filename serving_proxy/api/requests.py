# SPDX-License-Identifier: Apache-2.0
"""Bodies of the verbs' requests and responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving_proxy.deploy.options import DeployOptions, Percent, Place
from serving_proxy.deploy.views import JobView, ModelView
from serving_proxy.records.models import Epoch, VersionNumber
from serving_proxy.records.view import View


class Body(BaseModel):
    """Parent of all bodies: unknown fields are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DeployBody(DeployOptions):
    """A version to deploy; shares are in percent."""

    path: Place


class UndeployBody(Body):
    """A version to take out; null: the whole model."""

    version: VersionNumber | None = None


class TrafficBody(Body):
    """Percentages by version or label; the share that is not named goes to the baseline."""

    weights: Annotated[dict[Annotated[str, Field(max_length=64)], Percent], Field(max_length=1000)]


class RampBody(Body):
    """A share that is to be reached within some time."""

    version: VersionNumber
    to: Percent
    over_s: Annotated[float, Field(ge=0, le=366 * 86400, allow_inf_nan=False)]


class PromoteBody(Body):
    """The version that is to be the baseline."""

    version: VersionNumber


class RollbackBody(Body):
    """An epoch at which a version is to be held; null: roll the model back to its last good baseline."""

    epoch: Epoch | None = None
    version: VersionNumber | None = None


class ResumeBody(Body):
    """The version that is to follow its timeline again; null: the baseline."""

    version: VersionNumber | None = None


class PauseBody(Body):
    """Pause the experiments of a model, or resume them."""

    paused: bool = True


class DrainBody(Body):
    """Hosts to drain, or to start again: a host, with agents a machine or MACHINE/HOST; null: all of them."""

    host: Annotated[str, Field(max_length=260)] | None = None
    drain: bool = True


class DeployAnswer(View):
    """The deployed version, and the job that continues the deployment."""

    version: int
    job: JobView | None
    notes: list[str]
    model: ModelView


class ReloadAnswer(View):
    """The models that come from the present configuration."""

    models: list[str]


class Done(View):
    """The model that was changed."""

    model: str

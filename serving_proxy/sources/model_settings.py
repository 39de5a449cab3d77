# SPDX-License-Identifier: Apache-2.0
"""Settings of models that come from a configuration: a JSON file beside `models.config`, by the names of models.

    {"defaults": {"config": {"session_num": 2}, "batching": {"mode": "zero_wait", "max_rows": 128}},
     "models": {"ranking": {"optimize": true, "slo_p99_ms": 20}}}

A model has what it is given, and the defaults for the rest; keys of `config` are put together one by one. What is
deployed by hand has sessions and batching of the defaults where `deploy` says nothing of them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving_proxy.deploy.deployment import Deployment
from serving_proxy.errors import InvalidError
from serving_proxy.gates.ops import check_allowed
from serving_proxy.records.models import Batching, Limits, Settings


class ModelSettings(BaseModel):
    """What `deploy` would be given of a model."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    config: dict[str, Any] = Field(default_factory=dict)
    cpuset: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    batching: Batching | None = None
    limits: Limits | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    warmup: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    optimize: bool = False
    precision: Annotated[str, Field(pattern="^(auto|fp32|bf16)$")] = "auto"
    slo_p99_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    other_signature: bool = False
    allow_ops: list[Annotated[str, Field(max_length=128)]] = Field(default_factory=list)

    def deployment(self, source: str, number: int) -> Deployment:
        """Return how a version is deployed; what is not said is as if it had never been."""
        return Deployment(
            source=source,
            number=number,
            settings=Settings(
                config=self.config,
                warmup_file=self.warmup,
                cpuset=self.cpuset,
                batching=self.batching,
                limits=self.limits,
                priority=self.priority,
            ),
            optimize=self.precision if self.optimize else None,
            slo_p99_ms=self.slo_p99_ms,
            other_signature=self.other_signature,
            allowed_ops=check_allowed(self.allow_ops, "allow_ops"),
        )

    def completed(self, settings: Settings) -> Settings:
        """Return settings of an operator with sessions and batching of these where nothing was said."""
        own: dict[str, Any] = {"config": {**self.config, **settings.config}} if self.config else {}
        for field in ("batching", "limits"):
            value = getattr(self, field)
            if value is not None and field not in settings.model_fields_set:
                own[field] = value
        return settings.model_copy(update=own)


class SettingsFile(BaseModel):
    """The file as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    defaults: ModelSettings = ModelSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)

    def over(self, base: ModelSettings) -> SettingsFile:
        """Return the file with other settings below its defaults."""
        given = {field: getattr(self.defaults, field) for field in self.defaults.model_fields_set}
        given["config"] = {**base.config, **self.defaults.config}
        return self.model_copy(update={"defaults": base.model_copy(update=given)})

    def of(self, name: str) -> ModelSettings:
        """Return the settings of a model."""
        given = self.models.get(name)
        if given is None:
            return self.defaults
        own = {field: getattr(given, field) for field in given.model_fields_set}
        if "config" in own:
            own["config"] = {**self.defaults.config, **given.config}
        return self.defaults.model_copy(update=own)


def parse_settings(text: str, named: str) -> SettingsFile:
    """Read the text of such a file.

    Raises
    ------
    InvalidError
    """
    try:
        found = SettingsFile.model_validate_json(text)
        for one in (found.defaults, *found.models.values()):
            check_allowed(one.allow_ops, "allow_ops")
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        said = f"{place}: {fault['msg']}".removeprefix(": ")
        raise InvalidError(f"{named}: {said}, expected settings of models") from error
    except InvalidError as error:
        raise InvalidError(f"{named}: {error}") from error
    return found

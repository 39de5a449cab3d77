# SPDX-License-Identifier: Apache-2.0
"""Settings of models that come from a configuration: a JSON file used with `models.config`, by the names of models.

    {"defaults": {"config": {"session_num": 2}, "batching": {"mode": "zero_wait", "max_rows": 128}},
     "models": {"ranking": {"optimize": true, "slo_p99_ms": 20}}}

A model has its own settings, and the defaults for the rest; the keys of `config` are merged one by one. A model that is
deployed by hand gets sessions, batching and limits from the defaults if `deploy` does not set them.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving_proxy.deploy.options import ModelSettings
from serving_proxy.errors import InvalidError
from serving_proxy.field_faults import first_fault
from serving_proxy.gates.ops import check_allowed


class SettingsFile(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    defaults: ModelSettings = ModelSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)

    def over(self, base: ModelSettings) -> SettingsFile:
        """Return the file with `base` as the fallback of its defaults."""
        given = {field: getattr(self.defaults, field) for field in self.defaults.model_fields_set}
        given["config"] = {**(base.config or {}), **(self.defaults.config or {})}
        return self.model_copy(update={"defaults": base.model_copy(update=given)})

    def of(self, name: str) -> ModelSettings:
        """Return the settings of a model."""
        given = self.models.get(name)
        if given is None:
            return self.defaults
        own = {field: getattr(given, field) for field in given.model_fields_set}
        if "config" in own:
            own["config"] = {**(self.defaults.config or {}), **(given.config or {})}
        return self.defaults.model_copy(update=own)


def parse_settings(text: str, named: str) -> SettingsFile:
    """Read the text of such a file.

    Raises
    ------
    InvalidError
    """
    try:
        found = SettingsFile.model_validate_json(text)
        for settings in (found.defaults, *found.models.values()):
            check_allowed(settings.allow_ops, "allow_ops")
    except ValidationError as error:
        raise InvalidError(f"{named}: {first_fault(error)}") from error
    except InvalidError as error:
        raise InvalidError(f"{named}: {error}") from error
    return found

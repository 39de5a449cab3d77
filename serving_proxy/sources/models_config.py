# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's `models.config`, as a text file and as sent in a `HandleReloadConfigRequest`.

As in TensorFlow Serving, a file without a `model_config_list`, such as an empty one, changes nothing, and a request
without one is refused. An empty `model_config_list` requests no models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from pydantic import Field

from serving_proxy import messages
from serving_proxy.artifacts.urls import is_url, parse_url
from serving_proxy.deploy.deployment import check_name
from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Policy, PolicyKind, Record

# Value of the deprecated `model_type`, which is used if no platform is given.
_OTHER = 2
_LABEL = re.compile(r"[A-Za-z0-9_]{1,64}")


class ConfiguredModel(Record):
    """A model with a base directory, and the policy that chooses its versions."""

    name: str
    base_path: str
    policy: Policy = Policy()
    labels: dict[str, int] = Field(default_factory=dict)


def parse_text(text: str, named: str = "models.config") -> tuple[ConfiguredModel, ...]:
    """Read the text of a `models.config`.

    Raises
    ------
    InvalidError
        It is not a `ModelServerConfig` with a `model_config_list`, or contains something that this proxy does not
        support.
    """
    return _models(_parse(text, named), named)


def _parse(text: str, named: str) -> Any:
    message = messages.new("tensorflow.serving.ModelServerConfig")
    try:
        text_format.Parse(text, message, descriptor_pool=message.DESCRIPTOR.file.pool)
    except text_format.ParseError as error:
        raise InvalidError(f"{named}: {error}, expected a ModelServerConfig") from error
    except RecursionError as error:
        raise InvalidError(f"{named}: messages within messages too deep, expected a ModelServerConfig") from error
    return message


def parse_file(text: str, named: str) -> tuple[tuple[ConfiguredModel, ...], dict[str, str]] | None:
    """Read as much of a `models.config` as possible: a fault of one model does not affect the others.

    Returns
    -------
    (tuple of ConfiguredModel, dict) or None
        Models, and by name what is refused of a model or why all of it is refused. None: there is no
        `model_config_list`.

    Raises
    ------
    InvalidError
        It is not a `ModelServerConfig`.
    """
    message = _parse(text, named)
    if message.WhichOneof("config") is None:
        return None
    found: dict[str, ConfiguredModel] = {}
    refused: dict[str, str] = {}
    for entry in _entries(message, named):
        try:
            if entry.name in found:
                raise InvalidError(f"{named}: model '{entry.name}' appears twice, expected once")
            left_out = _drop_invalid_versions(entry)
            if left_out:
                refused[entry.name] = f"{named}: model '{entry.name}': {left_out} not served, expected numbers from 1"
            found[entry.name] = _model(entry, named)
        except InvalidError as error:
            refused[entry.name] = str(error)
    return tuple(found.values()), refused


def _entries(config: Any, named: str) -> Sequence[Any]:
    """Return the entries of a configuration."""
    choice = config.WhichOneof("config")
    if choice != "model_config_list":
        raise InvalidError(f"{named}: {f'a {choice}' if choice else 'nothing'}, expected a model_config_list")
    entries: Sequence[Any] = config.model_config_list.config
    return entries


def _drop_invalid_versions(entry: Any) -> str:
    """Remove versions below 1, which requests cannot name here, from an entry; return a text that lists them."""
    versions = entry.model_version_policy.specific.versions
    left_out = [f"version {number}" for number in versions if number < 1]
    if left_out and len(left_out) < len(versions):
        kept = [number for number in versions if number > 0]
        del versions[:]
        versions.extend(kept)
    else:
        left_out = []
    for label, number in sorted(entry.version_labels.items()):
        if number < 1:
            left_out.append(f"label {label} of version {number}")
            del entry.version_labels[label]
    return " and ".join(left_out) + (" is" if len(left_out) == 1 else " are") if left_out else ""


def single_model(name: str, base_path: str) -> ConfiguredModel:
    """Return the one model that is served without a `models.config`: the latest version of its base path.

    Raises
    ------
    InvalidError
        The name or the path is not valid.
    """
    message = messages.new("tensorflow.serving.ModelConfig")
    message.name, message.base_path = name, base_path
    return _model(message, "--model-base-path")


def parse_reload(data: bytes) -> tuple[ConfiguredModel, ...]:
    """Read the bytes of a `ReloadConfigRequest`, with the same checks as `parse_text`."""
    message = messages.new("tensorflow.serving.ReloadConfigRequest")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidError(f"reload request: {len(data)} bytes, expected a ReloadConfigRequest") from error
    if not message.HasField("config"):
        raise InvalidError("reload request: no config, expected one")
    return _models(message.config, "reload request")


def _models(config: Any, named: str) -> tuple[ConfiguredModel, ...]:
    found: dict[str, ConfiguredModel] = {}
    for entry in _entries(config, named):
        model = _model(entry, named)
        if model.name in found:
            raise InvalidError(f"{named}: model '{model.name}' appears twice, expected once")
        found[model.name] = model
    return tuple(found.values())


def _model(entry: Any, named: str) -> ConfiguredModel:
    name = check_name(entry.name)
    if entry.model_platform not in {"", "tensorflow"} or (not entry.model_platform and entry.model_type == _OTHER):
        found, wanted = f"platform '{entry.model_platform}'", "'tensorflow'"
        if not entry.model_platform:
            found, wanted = "model_type OTHER", "TENSORFLOW"
        raise InvalidError(f"{named}: model '{name}' has {found}, expected {wanted}")
    base_path = _local_path(entry.base_path)
    if is_url(base_path):
        base_path = str(parse_url(base_path, f"{named}: model '{name}' has base_path"))
    elif not base_path.startswith("/"):
        raise InvalidError(f"{named}: model '{name}' has base_path '{entry.base_path}', expected an absolute path")
    for label, version in entry.version_labels.items():
        if not _LABEL.fullmatch(label) or version < 1:
            raise InvalidError(f"{named}: model '{name}' has label '{label}': {version}, expected a name and a version")
    return ConfiguredModel(
        name=name, base_path=base_path, policy=_policy(entry, named), labels=dict(sorted(entry.version_labels.items()))
    )


def _local_path(path: str) -> str:
    """Return the path of a `file://` URL, or any other path unchanged."""
    return re.sub(r"^file://(localhost)?(?=/)", "", path)


def _policy(entry: Any, named: str) -> Policy:
    policy = entry.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return Policy(kind=PolicyKind.ALL)
    if kind == "specific":
        versions = tuple(sorted(set(policy.specific.versions)))
        if not versions or versions[0] < 1:
            raise InvalidError(f"{named}: model '{entry.name}' has versions {list(versions)}, expected numbers from 1")
        return Policy(kind=PolicyKind.SPECIFIC, versions=versions)
    return Policy(count=policy.latest.num_versions or 1)

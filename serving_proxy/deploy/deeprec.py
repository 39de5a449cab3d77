# SPDX-License-Identifier: Apache-2.0
"""The JSON configuration of a DeepRec Processor, used as it is: `savedmodel_dir` and the keys of its sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Settings

# Keys that have their own place in `desired.json`; hosts refuse them inside `config`.
_OWN = ("savedmodel_dir", "model_name", "model_version", "warmup_file_name", "cpusets")


@dataclass(frozen=True)
class DeepRecModel:
    """The content of such a file.

    Attributes
    ----------
    folder : str
        The SavedModel.
    folders : tuple of str
        Other folders that the model reads from: checkpoints.
    settings : Settings
    name : str or None
    version : int or None
    """

    folder: str
    folders: tuple[str, ...]
    settings: Settings
    name: str | None
    version: int | None


def is_deeprec_config(text: str) -> bool:
    """Return whether a file is JSON rather than a `models.config`."""
    return text.lstrip()[:1] == "{"


def parse_deeprec(text: str, named: str) -> DeepRecModel:
    """Read the JSON of a DeepRec Processor.

    Raises
    ------
    InvalidError
        It is not a JSON object, or names no SavedModel.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{named}: {error}, expected the JSON of a DeepRec Processor") from error
    if not isinstance(data, dict):
        raise InvalidError(f"{named}: a JSON {type(data).__name__}, expected an object")
    folder = _text(data, "savedmodel_dir", named)
    if not folder:
        raise InvalidError(f"{named}: no savedmodel_dir, expected the folder of a SavedModel")
    checkpoints = _text(data, "checkpoint_dir", named)
    version = data.get("model_version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 1):
        raise InvalidError(f"{named}: model_version {version!r}, expected a number from 1")
    settings = Settings(
        config={key: value for key, value in data.items() if key not in _OWN},
        warmup_file=_text(data, "warmup_file_name", named) or None,
        cpuset=_text(data, "cpusets", named) or None,
    )
    others = (checkpoints,) if checkpoints else ()
    return DeepRecModel(folder, others, settings, _text(data, "model_name", named) or None, version)


def _text(data: dict[str, Any], key: str, named: str) -> str:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidError(f"{named}: {key} {value!r}, expected a string")
    return value or ""

# SPDX-License-Identifier: Apache-2.0
"""Take over the models that hosts serve but the database does not know, so that a lost database stops no model."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving_proxy.artifacts.urls import is_url
from serving_proxy.deploy.adoption import adopt
from serving_proxy.deploy.changes import list_versions
from serving_proxy.deploy.control import Control
from serving_proxy.errors import NotFoundError, PreconditionError, ProxyError
from serving_proxy.experiments.traffic import to_percent
from serving_proxy.gates.fingerprint import files_of, stamp_of
from serving_proxy.gates.saved_model import read_signatures
from serving_proxy.records.models import Model, Note, Version
from serving_proxy.records.placement import Placement
from serving_proxy.system.files import read_regular

log = logging.getLogger("serving_proxy.adopting")

# More than hosts read.
_MOST_BYTES = 64 * 1024 * 1024


def adopt_unknown(control: Control) -> None:
    """Add the models of `desired.json` that are not in the database.

    For a model that is in the database, the database's record is used and the file's entry is ignored.

    Raises
    ------
    PreconditionError
        The database contains no model, desired.json is damaged, and no host has a readable copy of it: continuing
        would stop the models that are served.
    """
    body = _read_desired(control)
    if body is None:
        return
    lost = not control.models
    found = adopt(body, time.time())
    for reason in found.left:
        if reason.partition("/")[0].partition(":")[0] not in control.models:
            log.error("not adopted from desired.json: %s", reason)
            control.note("adopt", f"not adopted from desired.json: {reason}")
    for name, model in found.models.items():
        if name not in control.models:
            whole = model.change(
                versions={number: _with_file_data(version) for number, version in model.versions.items()}
            )
            log.warning("%s", _describe(whole))
            control.store([whole], [Note(kind="adopt", message=_describe(whole), model=name)])
    # A database that still has its models has no placement because that was cleared, which an old file may not know.
    if lost and control.placement is None and found.placed:
        # Without it, machines would load models for which they have no room.
        message = f"placement: adopted from desired.json: {len(found.placed)} models"
        control.place(Placement(models=found.placed), [Note(kind="adopt", message=message)])


def _read_desired(control: Control) -> Mapping[str, Any] | None:
    """Return what hosts are to serve, from `desired.json` or, if that is damaged, from a host's copy of it."""
    path = control.desired.path
    try:
        return _read(path)
    except NotFoundError:
        # This proxy has never written a desired.json, so no host serves a model because of it.
        damage = None
    except (ProxyError, ValueError, RecursionError) as error:
        damage = str(error).removeprefix(f"{path}: ")
    if control.models:
        return None
    kept = []
    for accepted in path.parent.glob("hosts/*/accepted.json"):
        with contextlib.suppress(ProxyError, ValueError, RecursionError):
            kept.append(_read(accepted))
    if kept:
        return max(kept, key=_generation)
    if damage is not None:
        raise PreconditionError(
            f"{path}: {damage}, expected models, as the database contains none; "
            "repair the file, or start without it by --discard-state"
        )
    return None


def _read(path: Path) -> Mapping[str, Any]:
    body = json.loads(read_regular(path, _MOST_BYTES))
    if not isinstance(body, dict) or not isinstance(body.get("models"), dict):
        raise ValueError("contains no models")
    return body


def _generation(body: Mapping[str, Any]) -> int:
    found = body.get("generation")
    return found if isinstance(found, int) else 0


def _with_file_data(version: Version) -> Version:
    """Return the version with its stamp, signatures and size as read from its files."""
    values: dict[str, Any] = {} if is_url(version.source) else {"stamp": stamp_of(Path(version.source))}
    with contextlib.suppress(ProxyError):
        values["signatures"] = read_signatures(Path(version.path or version.source))
    with contextlib.suppress(OSError):
        values["bytes"] = sum(path.stat().st_size for path in files_of(Path(version.path or version.source)))
    return version.model_copy(update=values)


def _describe(model: Model) -> str:
    split = "".join(f", {to_percent(weight):g} % to {number}" for number, weight in sorted(model.weights.items()))
    labels = "".join(f", '{label}' is {number}" for label, number in sorted(model.labels.items()))
    versions = f"versions {list_versions(model)}, baseline {model.baseline}{split}{labels}"
    return f"{model.name}: adopted from desired.json: {versions}"

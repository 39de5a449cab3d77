# SPDX-License-Identifier: Apache-2.0
"""Check by the hosts' own rules, before a change is written, whether hosts would serve the result.

The rules are in a part of the library that needs no kernels. It takes 1 MB of the proxy's own memory, and some 30 MB
that it shares with the hosts' files in the page cache.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Set
from typing import Any

from serving_proxy.artifacts.urls import is_url
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import GATED, State
from serving_proxy.system.cpus import format_cpus

log = logging.getLogger("serving_proxy.checking")

_MOST_TOLD = 5

Check = Callable[[str], Iterable[tuple[str | None, int | None, str]]]
"""Function from the text of a `desired.json` to model, version and message of everything that hosts would refuse."""


def load_rules() -> None:
    """Load the hosts' rules before anything else runs, without the line about oneDNN that TensorFlow prints.

    Standard error is for lines of JSON only. It can be redirected here because no other thread writes to it yet.
    """
    import processor

    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        # A missing library is reported at the first check.
        with contextlib.suppress(processor.ProcessorError):
            processor.check_desired('{"schema": 1, "generation": 0, "models": {}}')
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Checker:
    """Checks changes of models; used by one thread.

    Parameters
    ----------
    cpus : set of int
        The CPUs that hosts may use; empty: those of this process.
    """

    def __init__(self, cpus: Set[int] = frozenset()) -> None:
        self._cpus = format_cpus(set(cpus)) or None
        self._check: Check | None = self._refusals_of_library

    def check(self, before: Model | None, after: Model, settings: HostSettings) -> None:
        """Check a model in the form that hosts get once its versions have passed their gates.

        Faults that existed before the change, as in a database of an earlier release, do not prevent it: a rollback in
        particular must still work then.

        Raises
        ------
        InvalidError
            Hosts would refuse something that they would not have refused before; the message names model, version and
            key.
        """
        found = self._faults(after, settings)
        if found and before is not None:
            known = set(self._faults(before, settings))
            found = [refusal for refusal in found if refusal not in known]
        if found:
            more = f"; and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
            raise InvalidError("; ".join(found[:_MOST_TOLD]) + more)

    def _faults(self, model: Model, settings: HostSettings) -> list[str]:
        body = render({model.name: prospective(model)}, settings.model_copy(update={"cpusets": {}}))
        if not body["models"]:
            return []
        strange = [
            f"{model.name}/{number}: key '{key}': {what}"
            for number, version in model.versions.items()
            if version.active or version.desired
            for key, what in unwritable(version.settings.config)
            + unwritable({"path": _place(version), "warmup_file": version.settings.warmup_file})
        ]
        if strange:
            return strange
        try:
            text = json.dumps({"generation": 0, **body}, allow_nan=False)
        except (ValueError, RecursionError) as error:
            return [f"{model.name}: {error}, expected settings that JSON can hold"]
        found = () if self._check is None else self._check(text)
        return [_name_object(model.name, number, message) for _, number, message in found]

    def _refusals_of_library(self, text: str) -> Iterable[tuple[str | None, int | None, str]]:
        import processor

        try:
            found = processor.check_desired(text, self._cpus)
        except processor.InvalidArgumentError as error:
            return [(None, None, str(error))]
        except (processor.NotFoundError, processor.FailedPreconditionError) as error:
            # The hosts of this proxy are installed elsewhere: they refuse invalid settings themselves, version by
            # version.
            log.warning("settings are not checked before hosts have them: %s", error)
            self._check = None
            return []
        return [(refusal.model, refusal.version, refusal.message) for refusal in found]


def prospective(model: Model) -> Model:
    """Return the model as it will be once its pending versions have passed their gates."""
    versions = {
        number: version.model_copy(update={"state": State.LOADING, "path": _place(version)})
        if version.state in GATED
        else version
        for number, version in model.versions.items()
    }
    baseline = model.baseline
    if baseline is None or not versions[baseline].desired:
        # Otherwise nothing would be rendered, and nothing checked.
        baseline = next((number for number, version in versions.items() if version.desired), baseline)
    return model.change(versions=versions, baseline=baseline)


def _place(version: Version) -> str:
    """Return the path of a version; for one in a store, which is not known yet, a path that hosts accept."""
    return version.path or (f"/{version.source}" if is_url(version.source) else version.source)


def unwritable(value: Any, key: str = "") -> list[tuple[str, str]]:
    """Return the values that JSON cannot express, each with its key and the reason."""
    found: list[tuple[str, str]] = []
    left = [(key, value)]
    while left:
        place, item = left.pop()
        if isinstance(item, float) and not math.isfinite(item):
            found.append((place, f"{item} found, expected a finite number"))
        elif isinstance(item, str) and not _is_text(item):
            found.append((place, f"{item!a} found, expected text that UTF-8 can hold"))
        elif isinstance(item, dict):
            left += [(place or str(name), inner) for name, inner in item.items()]
        elif isinstance(item, list):
            left += [(place, inner) for inner in item]
    return found


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name_object(model: str, version: int | None, message: str) -> str:
    """Name the faulty object in the proxy's form: `ranking/4: config key 'session_num': ...`."""
    named = model if version is None else f"{model}/{version}"
    place = f"desired.json: models.{model}" + ("" if version is None else f".versions.{version}")
    return (
        f"{named}: {message.removeprefix(place).lstrip('.: ')}" if message.startswith(place) else f"{named}: {message}"
    )

# SPDX-License-Identifier: Apache-2.0
"""Wait until requested models are available, as TensorFlow Serving and Triton do before they reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from serving_proxy.deploy.control import Control
from serving_proxy.errors import LateError, NotLoadedError, PreconditionError
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import State
from serving_proxy.sources.models_config import ConfiguredModel
from serving_proxy.sources.watcher import Watcher

_PERIOD_S = 0.05
# At the first look at a directory no version counts, because files may still be copied; the second shows those at rest.
_LOOKS = 3


class Availability:
    """Waits for models. Failures are reported; loading that takes too long continues in the background."""

    def __init__(self, control: Control, watcher: Watcher) -> None:
        self._control = control
        self._watcher = watcher

    async def of_configured(self, configured: Sequence[ConfiguredModel], new: Iterable[str], seconds: float) -> None:
        """Wait until each new model has a version that serves, and every label names a version that does.

        Raises
        ------
        NotLoadedError
            A new model has no version that can be loaded.
        PreconditionError
            A label is for a version that is not available.
        LateError
        """
        seen = {model.name: self._watcher.looks(model.name) for model in configured}
        fresh = set(new)

        def pending() -> str | None:
            for model in configured:
                looked = self._watcher.looks(model.name) - seen[model.name] >= _LOOKS
                if model.name in fresh and (waits := self._model_waits(model.name, looked)):
                    return waits
                for label, number in model.labels.items():
                    if waits := self._label_waits(model.name, label, number, looked):
                        return waits
            return self._hosts_wait()

        await _wait_until_none(pending, seconds)

    async def of_model(self, name: str, seconds: float) -> None:
        """Wait until a deployed model has a version that serves; raise the errors of `of_configured`."""
        await _wait_until_none(lambda: self._model_waits(name, looked=True) or self._hosts_wait(), seconds)

    async def of_hosts(self, seconds: float) -> None:
        """Wait until every host serves the present desired state, and no version that was taken out.

        Raises
        ------
        LateError
        """

        def pending() -> str | None:
            return self._hosts_wait() if self._control.is_published else "hosts: have not read the desired state yet"

        await _wait_until_none(pending, seconds)

    def _hosts_wait(self) -> str | None:
        """Return a text if a host has not read the present desired state yet; None if all have."""
        wanted = self._control.desired.generation
        late = [
            host for host in self._control.hosts if host.alive and host.state != "draining" and host.generation < wanted
        ]
        return f"host '{late[0].name}': has not read the desired state yet" if late else None

    def _model_waits(self, name: str, looked: bool) -> str | None:
        """Return the reason why a model is not available yet; None if it is available."""
        model = self._control.models.get(name)
        versions = [] if model is None else list(model.versions.values())
        if any(version.state == State.READY for version in versions):
            return None
        if any(version.active for version in versions):
            return f"model '{name}': a version is being loaded"
        failed = [version for version in versions if version.state == State.FAILED]
        if failed:
            last = max(failed, key=lambda version: version.number)
            raise NotLoadedError(f"model '{name}' version {last.number}: did not become available: {last.reason}")
        if looked:
            where = "" if model is None or model.base_path is None else f" in {model.base_path}"
            raise NotLoadedError(f"model '{name}': no version{where}, expected one to load")
        return f"model '{name}': its versions have not been found yet"

    def _label_waits(self, name: str, label: str, number: int, looked: bool) -> str | None:
        """Return the reason why a label's version is not available yet; None if it is available."""
        model = self._control.models.get(name)
        version = None if model is None else model.versions.get(number)
        if version is not None and version.state == State.READY:
            return None if _published_version(model, label) == number else f"model '{name}': label '{label}' is moving"
        if version is not None and version.active:
            return f"model '{name}': version {number} of label '{label}' is being loaded"
        if looked or (version is not None and version.state == State.FAILED):
            raise PreconditionError(
                f"model '{name}': label '{label}' is for version {number}, which {_describe_state(version)}, "
                "expected one that is available"
            )
        return f"model '{name}': version {number} of label '{label}' has not been found yet"


def _published_version(model: Model | None, label: str) -> int | None:
    return None if model is None else model.published.get(label)


def _describe_state(version: Version | None) -> str:
    if version is None:
        return "is not there"
    return f"failed: {version.reason}" if version.state == State.FAILED else f"is {version.state}"


async def _wait_until_none(pending: Callable[[], str | None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while (waits := pending()) is not None:
        if time.monotonic() >= end:
            raise LateError(f"{waits} after {seconds:g} s; the proxy continues")
        await asyncio.sleep(_PERIOD_S)

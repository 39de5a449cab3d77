# SPDX-License-Identifier: Apache-2.0
"""Models by name, as in the Open Inference Protocol's repository: loaded and unloaded as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.deploy.control import Control
from serving_proxy.deploy.deployment import Deployment, check_name
from serving_proxy.deploy.operations import Operations
from serving_proxy.errors import NotFoundError
from serving_proxy.records.models import Model
from serving_proxy.sources.availability import Availability
from serving_proxy.sources.base_directory import version_folders


class ModelRepository:
    """The models that a client may load: those deployed before, and folders `<model root>/<model>/<version>`."""

    def __init__(self, control: Control, operations: Operations, availability: Availability) -> None:
        self._control = control
        self._operations = operations
        self._availability = availability

    async def load(self, name: str, seconds: float) -> None:
        """Deploy a model unless it is deployed, and wait until it is available.

        Raises
        ------
        ProxyError
            As in `Operations.deploy` and `Availability.of_model`; NotFoundError if there is no such model.
        """
        model = self._control.models.get(check_name(name))
        configured = model is not None and model.policy is not None
        deployed = model is not None and any(version.active for version in model.versions.values())
        if not (configured or deployed):
            asked = _former_deployment(model)
            if asked is None:
                asked = await asyncio.to_thread(self._find_in_roots, name)
            await self._operations.deploy(name, asked)
        await self._availability.of_model(name, seconds)

    async def unload(self, name: str, seconds: float) -> None:
        """Take out a model; requests in flight are still served.

        Parameters
        ----------
        seconds : float [s]
            Longest time to wait until no host accepts requests for it.

        Raises
        ------
        ProxyError
            As in `Operations.undeploy` and `Availability.of_hosts`; NotFoundError if it is not loaded.
        """
        model = self._control.models.get(check_name(name))
        if model is None or not any(version.active or version.desired for version in model.versions.values()):
            raise NotFoundError(f"model '{name}': not loaded, expected a loaded model")
        self._operations.undeploy(name)
        if seconds > 0:
            await self._availability.of_hosts(seconds)

    def _find_in_roots(self, name: str) -> Deployment:
        for root in self._control.options.model_roots:
            folders = version_folders(Path(root) / name)
            if folders:
                newest = max(folders)
                return Deployment(source=str(folders[newest]), number=newest)
        raise NotFoundError(
            f"model '{name}': was never deployed, and is not a folder below a --model-root, expected one of these"
        )


def _former_deployment(model: Model | None) -> Deployment | None:
    """Return the deployment that restores an undeployed model; None if there was no such model."""
    if model is None or not model.versions:
        return None
    version = model.versions.get(model.baseline or 0) or model.versions[max(model.versions)]
    return Deployment(
        source=version.source,
        number=version.number,
        settings=version.settings,
        optimize=version.optimize,
        slo_p99_ms=version.slo_p99_ms,
        profile=version.profile,
        other_signature=version.other_signature,
        allowed_ops=version.allowed_ops,
    )

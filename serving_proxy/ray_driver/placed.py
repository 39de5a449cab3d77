# SPDX-License-Identifier: Apache-2.0
"""The class of the actor, which knows Ray; `actor.py` does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving_proxy.ray_driver.actor import Replica
from serving_proxy.ray_driver.library import import_ray


class PlacedReplica(Replica):
    """A replica on a node of Ray.

    Parameters
    ----------
    name, spec, access
        As for Replica.
    """

    def __init__(self, name: str, spec: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        ray = import_ray()
        self._node = str(ray.get_runtime_context().get_node_id())
        super().__init__(name, spec, access, ray.util.get_node_ip_address())

    def status(self) -> dict[str, Any]:
        """Return what `ReplicaSeen` has, except what only the driver knows."""
        return {**super().status(), "node": self._node}

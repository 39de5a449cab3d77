# SPDX-License-Identifier: Apache-2.0
"""Profiles in the model store: what one machine has measured, others with the same CPU begin with."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from cost_model.errors import CostModelError
from cost_model.profiling.profile import cpu_model, load_profile
from serving_proxy.artifacts.given_profiles import fetch_profile
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import NotFoundError, ProxyError
from serving_proxy.system.files import private_folder, replace

log = logging.getLogger("serving_proxy.profiles")

FOLDER = "profiles"
_MOST_BYTES = 64 * 1024 * 1024


class StoredProfiles:
    """Profiles by CPU model and graph; a store that fails costs a measurement, and nothing else.

    Parameters
    ----------
    root : StoreUrl or None
        The model store; None: there is none.
    """

    def __init__(self, root: StoreUrl | None) -> None:
        self._root = root

    def put(self, graph: str, file: Path) -> None:
        """Upload a profile that was measured here; it replaces an earlier one of the same graph and CPU."""
        if self._root is None:
            return
        try:
            open_store(self._root).put(self._place(self._root, graph), file.read_bytes())
        except (ProxyError, OSError) as error:
            log.warning("profile %s: %s; it stays on this machine", file.name, error)

    def fetch(self, graph: str, folder: Path) -> Path | None:
        """Copy the profile of a graph into a folder and return the file; None: there is none that can be used."""
        if self._root is None:
            return None
        place = self._place(self._root, graph)
        try:
            data = bytes(open_store(self._root).read(place, 0, _MOST_BYTES))
            copy = private_folder(folder / "fetched", "profile") / f"{graph}.json"
            replace(copy, data)
            found = load_profile(copy)
            if (found.fingerprint, found.cpu_model) == (graph, cpu_model()):
                return copy.replace(folder / f"{graph}-fetched.json")
            log.warning("%s: of another graph or CPU, expected those of its name", place)
        except NotFoundError:
            pass
        except (ProxyError, CostModelError, OSError) as error:
            log.warning("%s: %s; the model is measured here", place, error)
        return None

    def fetch_given(
        self, model: str | None, graph: str, folder: Path, machine: Callable[[], MachineStore]
    ) -> Path | None:
        """Copy the profile that was given with a version into a folder and return the file; None: there is none.

        Parameters
        ----------
        model : str or None
            URL of the version's files; None: it is in no store.
        graph : str
            Its graph.
        folder : Path
        machine : callable
            Returns the content store of this machine, which fetches the profile.
        """
        if self._root is None or model is None:
            return None
        try:
            fetched = fetch_profile(self._root, model, machine())
            if fetched is None:
                return None
            found = load_profile(fetched)
            if (found.fingerprint, found.cpu_model) == (graph, cpu_model()):
                copy = folder / f"{graph}-given.json"
                replace(copy, fetched.read_bytes())
                return copy
            log.info("the profile that was given with %s is of another graph or CPU", model)
        except (ProxyError, CostModelError, OSError) as error:
            log.warning("profile of %s: %s; the model is measured here", model, error)
        return None

    def _place(self, root: StoreUrl, graph: str) -> StoreUrl:
        cpu = re.sub(r"[^A-Za-z0-9]+", "-", cpu_model()).strip("-")
        return root / FOLDER / (cpu or "unknown") / f"{graph}.json"

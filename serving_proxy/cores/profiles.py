# SPDX-License-Identifier: Apache-2.0
"""Profiles of versions: given with `deploy --profile`, measured while hosts serve, or put into the folder by hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cost_model.errors import CostModelError
from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.profile import load_profile
from cost_model.service import ServiceTable
from serving_proxy.cores import DeployedTenant
from serving_proxy.deploy.control import Control
from serving_proxy.errors import InvalidError
from serving_proxy.gates.profile import check_profile

log = logging.getLogger("serving_proxy.profiles")

_STORED = "profiles"
_SOURCES = {
    "given": "the profile {}, given with `--profile`",
    "measured": "the profile {}, measured here",
    "checked": "the profile {} of the same graph, which one measured point confirms",
    "found": "the profile {} of the same graph",
}


@dataclass(frozen=True)
class Known:
    """A profile of a version.

    Attributes
    ----------
    table : ServiceTable
    file : Path
    how : str
        `given`, `measured`, `checked`, or `found` (of the same graph, and not checked).
    """

    table: ServiceTable
    file: Path
    how: str

    @property
    def source(self) -> str:
        """Return a text that says where the profile comes from."""
        return _SOURCES[self.how].format(self.file.name)


class Profiles:
    """Finds the profile of each version; models and files are read on threads."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._known: dict[tuple[str, str | None], Known | None] = {}
        self._files: tuple[tuple[str, int], ...] = ()
        self._looked = asyncio.Event()
        self._refusals: dict[str, str] = {}
        self._records = _records(control.repository.setting(_STORED))

    def of(self, tenant: DeployedTenant) -> Known | None:
        """Return the profile that was found last."""
        return self._known.get((tenant.path, tenant.profile))

    async def look(self, tenants: Iterable[DeployedTenant]) -> None:
        """Find the profiles of new versions, or of all versions if files have changed."""
        files = await asyncio.to_thread(_list_files, self._control.options.profiles)
        wanted = {(tenant.path, tenant.profile): tenant for tenant in tenants}
        if files == self._files:
            wanted = {key: tenant for key, tenant in wanted.items() if key not in self._known}
        # The earlier result is used until the new one is found.
        for key, tenant in sorted(wanted.items(), key=str):
            self._known[key] = await self._find_profile(tenant)
        self._files = files
        self._looked.set()

    async def _find_profile(self, tenant: DeployedTenant) -> Known | None:
        given = tenant.profile
        if given is not None:
            try:
                # The profile of an optimized version could not be compared when it was given.
                profile = await asyncio.to_thread(check_profile, Path(given), Path(tenant.path))
                return Known(profile.service, Path(given), "given")
            except InvalidError as error:
                self._note_refusal(tenant, str(error))
        while True:
            record = self._records.get(tenant.path)
            listed = await asyncio.to_thread(_list_files, self._control.options.profiles)
            found = await asyncio.to_thread(_find, tenant.path, record, [Path(name) for name, _ in listed])
            # If another profile was recorded meanwhile, search again.
            if record == self._records.get(tenant.path):
                return found

    def _note_refusal(self, tenant: DeployedTenant, why: str) -> None:
        """Record once that a given profile cannot be used."""
        if self._refusals.get(tenant.path) != why:
            self._refusals[tenant.path] = why
            message = f"{tenant.name}: is measured, because the given profile does not belong to it: {why}"
            self._control.note("profile", message, tenant.model, tenant.version)

    async def wait_for_first_refresh(self, seconds: float) -> None:
        """Wait until versions have been looked at once, or until this time [s] has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._looked.wait()

    def of_graph(self, graph: str) -> Path | None:
        """Return the file of a profile of this graph, possibly with other weights."""
        return _of_graph(graph, [Path(name) for name, _ in self._files])

    async def record(self, path: str, file: Path, how: str) -> None:
        """Remember which profile a model's folder has."""
        alive = {version.path for model in self._control.models.values() for version in model.versions.values()}
        self._records = {folder: found for folder, found in self._records.items() if folder in alive}
        self._records[path] = (file.name, how)
        self._control.repository.set_setting(_STORED, {folder: list(found) for folder, found in self._records.items()})
        found = await asyncio.to_thread(_find, path, self._records[path], [file])
        for key, known in list(self._known.items()):
            # A profile that was given meanwhile takes precedence.
            if key[0] == path and (known is None or known.how != "given"):
                self._known[key] = found


def _records(kept: object) -> dict[str, tuple[str, str]]:
    found = kept if isinstance(kept, dict) else {}
    return {
        str(path): (str(record[0]), str(record[1]))
        for path, record in found.items()
        if isinstance(record, list) and len(record) == 2 and record[1] in _SOURCES
    }


def _list_files(folder: Path) -> tuple[tuple[str, int], ...]:
    found = []
    for path in folder.glob("*.json"):
        # Skip links that lead nowhere, and files that were removed meanwhile.
        with contextlib.suppress(OSError):
            found.append((str(path), path.stat().st_mtime_ns))
    return tuple(sorted(found))


def _find(path: str, record: tuple[str, str] | None, files: Sequence[Path]) -> Known | None:
    """Return the profile of a model's folder; log and skip files that are not profiles."""
    named = [file for file in files if record is not None and file.name == record[0]]
    if record is not None and named:
        try:
            return Known(load_profile(named[0]).service, named[0], record[1])
        except CostModelError as error:
            log.warning("%s", error)
    try:
        file = _of_graph(fingerprint(Path(path)), files)
        return None if file is None else Known(load_profile(file).service, file, "found")
    except CostModelError as error:
        log.info("%s", error)
        return None


def _of_graph(graph: str, files: Iterable[Path]) -> Path | None:
    for file in files:
        try:
            found = load_profile(file)
            if found.fingerprint == graph and found.service:
                return file
        except CostModelError as error:
            log.warning("%s", error)
    return None

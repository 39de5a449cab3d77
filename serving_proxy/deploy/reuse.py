# SPDX-License-Identifier: Apache-2.0
"""Find what was read or made for another version, so that variants of one model share its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from serving_proxy.gates.fingerprint import Fingerprint
from serving_proxy.gates.saved_model import is_live
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import SERVED


def read_before(models: Mapping[str, Model]) -> dict[Path, Fingerprint]:
    """Return the fingerprints of the folders that are served."""
    return {
        Path(version.path): Fingerprint(version.sha256, version.bytes, version.seal)
        for version in _served(models)
        if version.path and version.sha256 and version.seal and version.bytes is not None
    }


def made_before(models: Mapping[str, Model], wanted: Version) -> Path | None:
    """Return the artifact of a served version that was optimized from the same files in the same way, if any."""
    for version in _served(models):
        if version.path is not None and _recipe(version) == _recipe(wanted):
            path = Path(version.path)
            # Another proxy may have made it, on its own machine.
            if path.is_dir() and is_live(path) == (wanted.settings.follow is not None):
                return path
    return None


def _served(models: Mapping[str, Model]) -> Iterator[Version]:
    for model in models.values():
        yield from (version for version in model.versions.values() if version.state in SERVED)


def _recipe(version: Version) -> tuple[str | None, ...]:
    return version.source, version.stamp, version.optimize, version.settings.warmup_file

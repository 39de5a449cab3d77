# SPDX-License-Identifier: Apache-2.0
"""Check the profile that an operator gives with a version."""

from __future__ import annotations

from pathlib import Path

from cost_model.errors import CostModelError
from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.profile import Profile, load_profile
from serving_proxy.errors import InvalidError


def check_profile(file: Path, folder: Path | None) -> Profile:
    """Return a profile, or raise `InvalidError` if it is not for this machine or not of the folder's graph."""
    try:
        found = load_profile(file)
        _ = found.service
        graph = found.fingerprint if folder is None else fingerprint(folder)
    except CostModelError as error:
        raise InvalidError(str(error)) from error
    if found.fingerprint != graph:
        raise InvalidError(f"profile {file}: of graph {found.fingerprint}, expected {graph}, that of {folder}")
    return found

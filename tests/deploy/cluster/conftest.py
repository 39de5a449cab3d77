# SPDX-License-Identifier: Apache-2.0
"""The control plane of a cluster, for all tests of this folder; `make test-kubernetes` compiles it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.deploy.cluster import Cluster, missing_programs
from helpers.system.programs import require, skip_or_fail


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without nodes."""
    require("unshare", "mount", "openssl")
    missing = missing_programs()
    if missing:
        skip_or_fail(f"{', '.join(missing)}: not built, expected `make test-kubernetes`")
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running

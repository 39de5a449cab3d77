# SPDX-License-Identifier: Apache-2.0
"""A bucket with artifacts, and content stores that fetch them."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass
from pathlib import Path

from helpers.system.s3 import Forwarder
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.uploading import Upload, upload
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.gates.fingerprint import files_of, fingerprint

TABLE_BYTES = 20_000_003


@dataclass
class Bucket:
    """A bucket that is reached through a connection that can break."""

    url: str
    connection: Forwarder

    def put(self, folder: Path, path: str) -> str:
        """Upload a model; return its URL."""
        url = parse_url(f"{self.url}/{path}", "url")
        put_artifact(folder, parse_url(self.url, "url"), url)
        return str(url)


def put_artifact(folder: Path, root: StoreUrl, url: StoreUrl) -> None:
    """Upload a model."""
    found = fingerprint(folder, lambda: False, lambda done, total: None)
    upload(Upload(folder, found.sha256, root, url))


def store_of(tmp_path: Path, limit_bytes: int | None = None, user: str = "state") -> MachineStore:
    (tmp_path / user).mkdir(exist_ok=True)
    return MachineStore(tmp_path / "store", tmp_path / user, limit_bytes, patience_s=0.5)


def assert_same(folder: Path, other: Path) -> None:
    names = [path.relative_to(folder) for path in files_of(folder)]
    assert names == [path.relative_to(other) for path in files_of(other)]
    assert filecmp.cmpfiles(folder, other, map(str, names), shallow=False)[1:] == ([], [])

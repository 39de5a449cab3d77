# SPDX-License-Identifier: Apache-2.0
"""A server of S3 with a bucket, and a model to put there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import TABLE_BYTES, Bucket, store_of
from helpers.system.s3 import Forwarder, s3_environment
from serving_proxy.artifacts.machine_store import MachineStore


@pytest.fixture
def bucket(s3_port: int) -> Iterator[Bucket]:
    """A bucket that the tests share, so that they upload the large table once."""
    connection = Forwarder(s3_port)
    with s3_environment(connection.port):
        yield Bucket("s3://models", connection)
    connection.close()


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of an artifact: a graph and a table of three parts."""
    folder = tmp_path_factory.mktemp("model") / "7"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(os.urandom(5000))
    (folder / "variables" / "variables.index").write_bytes(b"")
    (folder / "items.emb").write_bytes(os.urandom(TABLE_BYTES))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> MachineStore:
    return store_of(tmp_path)

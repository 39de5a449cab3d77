# SPDX-License-Identifier: Apache-2.0
"""A proxy for the tests of a module; each test has models of its own name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import ProxyThread, write_model
from helpers.system.s3 import make_bucket, s3_server
from serving_proxy import Client


@pytest.fixture(scope="session")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server of S3 with the bucket `models`."""
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        make_bucket(port, "models")
        yield port


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    """A proxy with one scripted host, and a token that its clients find."""
    with ProxyThread(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture(scope="module")
def open_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    """A proxy that wants no token."""
    with ProxyThread(tmp_path_factory.mktemp("open"), "--admin-auth", "none", host="none") as running:
        yield running


@pytest.fixture
def client(proxy: ProxyThread) -> Iterator[Client]:
    with proxy.client() as made:
        yield made


_NUMBERS = count(1)


@pytest.fixture
def name() -> str:
    """The name of a model that no other test has."""
    return f"model_{next(_NUMBERS)}"


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """`model(3)`: a folder with a SavedModel of that number, the same whenever it is asked for."""

    def made(number: int, inputs: dict[str, int] | None = None) -> Path:
        folder = tmp_path / "models" / str(number)
        return folder if folder.exists() else write_model(folder, inputs)

    return made

# SPDX-License-Identifier: Apache-2.0
"""Azure's protocol at azurite, Microsoft's emulator; `make test-stores` gets it from npm."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import assert_same, put_artifact, store_of
from helpers.system.programs import ROOT, require, skip_or_fail
from load_tests.ports import free_port
from serving_proxy.artifacts import stores
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import NotFoundError
from serving_proxy.leadership.shared_store import open_shared_store

pytestmark = pytest.mark.long

AZURITE = ROOT / "build" / "store-tools" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# Published by Microsoft for its emulator.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty container."""
    require("node")
    if not AZURITE.exists():
        skip_or_fail("azurite: not there, expected `make test-stores`")
    port, folder = free_port(), tmp_path_factory.mktemp("azurite")
    options = ["--blobPort", str(port), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["node", AZURITE, *options, "--inMemoryPersistence"], stdout=log, stderr=log, cwd=folder
        )
    with pytest.MonkeyPatch.context() as patch:
        try:
            _wait(process, port, folder / "log")
            _make_container(port, "models")
            patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
            patch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")
            stores.forget_stores()
            yield "az://models"
        finally:
            process.kill()
            process.wait()
            stores.forget_stores()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end
        time.sleep(0.05)


def _make_container(port: int, name: str) -> None:
    date, version = email.utils.formatdate(usegmt=True), "2020-10-02"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers = {"x-ms-date": date, "x-ms-version": version, "Content-Length": "0"}
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).read()


def test_a_model_is_uploaded_and_fetched(container: str, model_files: Path, tmp_path: Path) -> None:
    url = parse_url(f"{container}/ranking/7", "url")
    put_artifact(model_files, parse_url(container, "url"), url)
    assert open_store(url).folders(parse_url(f"{container}/ranking", "url")) == ["7"]
    assert_same(store_of(tmp_path).fetch(str(url)).path, model_files)
    with pytest.raises(NotFoundError, match="az://models/ranking/8"):
        store_of(tmp_path).fetch(f"{container}/ranking/8")


def test_proxies_may_share_a_container(container: str) -> None:
    shared = [open_shared_store(f"{container}/proxies") for _ in range(4)]
    for number in range(20):
        won: list[int] = []
        start = threading.Barrier(len(shared))

        def create(of: int, name: str, start: threading.Barrier, won: list[int]) -> None:
            start.wait()
            if shared[of].create(name, str(of).encode()):
                won.append(of)

        name = f"log/{number:012d}"
        threads = [threading.Thread(target=create, args=(of, name, start, won)) for of in range(len(shared))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = won
        assert shared[0].get(name) == str(winner).encode()
    assert shared[0].numbers("log") == list(range(20))

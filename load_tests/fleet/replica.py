# SPDX-License-Identifier: Apache-2.0
"""`replica`: a model of 1 GB from an empty disk on a local S3 server, beside a plain copy of the same bytes.

The server is versitygw if it is on the PATH or in VERSITYGW, else moto's, which is many times slower.
The plain copy uses the same client: eight ranges of 8 MiB at a time, then fsync. The replica is checked: parts by
CRC-32C, files by SHA-256, and it ends with a folder that hosts can load without reading its files again.
Copies and replicas take turns.
"""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.fleet.s3 import BUCKET, s3_server
from load_tests.fleet.setup import Setup
from serving_proxy.artifacts.fetching import IN_FLIGHT
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.manifest import PART_BYTES, RemoteArtifact
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.uploading import Upload, upload
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.gates.fingerprint import fingerprint

__all__ = ["judge", "measure"]

_GRAPH_BYTES = 2_000_000


def measure(setup: Setup) -> dict[str, Any]:
    """Upload a model, then copy it and make replicas of it in turn."""
    size, rounds = (20_000_000, 1) if setup.quick else (1_000_000_000, 5)
    folder = ROOT / ".cache" / "fleet" / "replica"
    shutil.rmtree(folder, ignore_errors=True)
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(np.random.default_rng(1).bytes(_GRAPH_BYTES))
    (model / "items.emb").write_bytes(np.random.default_rng(2).bytes(size - _GRAPH_BYTES))
    root = parse_url(f"s3://{BUCKET}", "store")
    try:
        with s3_server(folder) as server:
            found = fingerprint(model, lambda: False, lambda done, total: None)
            store = open_store(root)
            began = time.perf_counter()
            artifact = upload(Upload(model, found.sha256, root, root / "ranking/7"))
            upload_s = time.perf_counter() - began
            copies, replicas, wrong = [], [], 0
            for number in range(rounds):
                copies.append(_copy(store, artifact, folder / f"copy-{number}"))
                machine = MachineStore(folder / f"store-{number}", folder)
                began = time.perf_counter()
                fetched = machine.fetch("s3://models/ranking/7")
                replicas.append(time.perf_counter() - began)
                again = fingerprint(fetched.path, lambda: False, lambda done, total: None)
                wrong += again.sha256 != found.sha256 or again.seal != fetched.seal
                shutil.rmtree(folder / f"copy-{number}")
                shutil.rmtree(machine.root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "server": server,
        "bytes": artifact.bytes,
        "upload_s": upload_s,
        "copy_s": _spread(copies),
        "replica_s": _spread(replicas),
        "ratio": median(replicas) / median(copies),
        "limit_s": 1.2 * median(copies) + 1.0,
        "wrong": wrong,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the replica with 1.2 times the copy plus a second."""
    return [Target("replica of 1 GB from an empty disk [s]", case["replica_s"]["median"], case["limit_s"], False)]


def _copy(store: Store, artifact: RemoteArtifact, folder: Path) -> float:
    """Copy an artifact's bytes in ranges, sync them, and return how long that took [s]."""
    folder.mkdir()
    began = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for number, file in enumerate(artifact.files):
            target = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)

            def copy(offset: int, file: Any = file, target: int = target) -> None:
                os.pwrite(target, store.read(file.url, offset, min(PART_BYTES, file.bytes - offset)), offset)

            list(pool.map(copy, range(0, file.bytes, PART_BYTES)))
            os.fsync(target)
            os.close(target)
    return time.perf_counter() - began


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "greatest": max(values)}

# SPDX-License-Identifier: Apache-2.0
"""Deployments that graph-tools optimizes in a separate process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy import Client
from serving_proxy.control import cleaning
from serving_proxy.errors import PreconditionError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Workers have a low priority: while other tests run, they take many times as long.
_OPTIMIZED_S = 600.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    patch = pytest.MonkeyPatch()
    patch.setattr(cleaning, "_PERIOD_S", 0.2)
    with ProxyThread(tmp_path_factory.mktemp("proxy"), "--maintenance-cpus", "0") as running:
        yield running
    patch.undo()


@pytest.fixture(scope="module")
def table_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """user, item int64 [batch] -> score float32 [batch, 8]: a row of each of two tables."""
    import tensorflow as tf

    rows = np.random.default_rng(1).normal(size=(2, 50, 4)).astype(np.float32)
    spec = {name: tf.TensorSpec([None], tf.int64, name=name) for name in ("user", "item")}
    module = tf.Module()
    module.users, module.items = (tf.Variable(row) for row in rows)

    @tf.function(input_signature=[spec["user"], spec["item"]])
    def serve(user: object, item: object) -> dict[str, object]:
        return {"score": tf.tanh(tf.concat([tf.gather(module.users, user), tf.gather(module.items, item)], 1))}

    path = tmp_path_factory.mktemp("tables") / "model"
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def workers() -> list[int]:
    """Return the processes that optimize for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"serving_proxy.workers.optimize_worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_an_optimized_model_is_verified_served_and_removed(
    proxy: ProxyThread, client: Client, table_model: Path, name: str
) -> None:
    job = client.deploy(name, table_model, version=3, optimize=True, precision="fp32")["job"]
    (worker,) = wait_for(workers, _OPTIMIZED_S)
    wait_for(
        lambda: os.getpriority(os.PRIO_PROCESS, worker) == 10 and os.sched_getaffinity(worker) == {0}, _OPTIMIZED_S
    )
    steps: list[str] = []
    client.wait(job["id"], timeout=_OPTIMIZED_S, told=lambda job: steps.append(job["step"]))
    assert any(step.startswith("optimizing: ") for step in steps)
    (version,) = client.versions(name)["versions"]
    served = Path(proxy.desired()["models"][name]["versions"]["3"]["path"])
    assert (version["path"], version["source"], version["optimize"]) == (str(served), str(table_model), "fp32")
    assert served.is_relative_to(proxy.state_dir / "artefacts" / name)
    assert (served / "assets.extra" / "recprocessor" / "manifest.json").is_file()
    assert served.with_suffix(".json").is_file()
    tables = list((proxy.state_dir / "tables").glob("*.emb"))
    assert tables
    client.undeploy(name)
    wait_for(lambda: not served.exists() and not served.with_suffix(".json").exists())
    wait_for(lambda: not any(table.exists() for table in tables))
    assert table_model.exists()


def test_a_model_that_cannot_be_optimized_fails_with_the_reason(
    client: Client, tiny_model: Path, name: str, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "4")
    for file in (tmp_path / "4" / "variables").glob("*.data*"):
        os.truncate(file, 3)
    with pytest.raises(PreconditionError) as failed:
        client.deploy(name, tmp_path / "4", optimize=True, wait=True, timeout=_OPTIMIZED_S)
    assert str(tmp_path / "4") in str(failed.value)
    assert client.versions(name)["versions"][0]["reason"] == str(failed.value)


def test_an_optimization_is_cancelled_and_leaves_nothing(
    proxy: ProxyThread, client: Client, string_model: Path, name: str
) -> None:
    job = client.deploy(name, string_model, version=3, optimize=True)["job"]
    wait_for(lambda: client.job(job["id"])["step"].startswith("optimizing: "), _OPTIMIZED_S)
    assert client.cancel(job["id"])["state"] == "cancelled"
    assert workers() == []
    assert client.versions(name)["versions"][0]["state"] == "stopped"
    wait_for(lambda: not list((proxy.state_dir / "artefacts").glob(f"{name}/*")))


def test_a_killed_worker_is_a_failure(client: Client, string_model: Path, name: str) -> None:
    job = client.deploy(name, string_model, version=3, optimize=True)["job"]
    (worker,) = wait_for(workers, _OPTIMIZED_S)
    wait_for(lambda: client.job(job["id"])["step"].startswith("optimizing"), _OPTIMIZED_S)
    os.kill(worker, 9)
    wait_for(lambda: client.job(job["id"])["state"] == "failed", _OPTIMIZED_S)
    assert "ended by SIGKILL" in client.job(job["id"])["error"]
    assert client.versions(name)["versions"][0]["state"] == "failed"

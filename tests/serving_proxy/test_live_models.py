# SPDX-License-Identifier: Apache-2.0
"""The proxy with a real host and models that follow timelines: from an export to variants that share a base."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import processor
from graph_tools import optimize
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.verbs.delta.make import make_delta
from helpers.hosts.contract_messages import decode, encode
from helpers.models.idiom_models import export_function, table
from helpers.models.live_models import START, publish
from helpers.proxies.proxy_runs import ProxyProcess, wait_for
from helpers.system.s3 import s3_environment
from serving_proxy.artifacts.timelines import TimelineUpload
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import NotFoundError, PreconditionError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Workers have a low priority: while other tests run, they take many times as long.
_OPTIMIZED_S = 600.0

IDS = {"ids": np.arange(16, dtype=np.int64)}


@pytest.fixture(scope="module")
def stored_deltas(s3_port: int) -> Iterator[StoreUrl]:
    """The place of a timeline in a store, which processes that are started from now on can read."""
    with s3_environment(s3_port):
        yield parse_url("s3://models/deltas/live", "url")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, stored_deltas: StoreUrl) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), host="python") as running:
        yield running


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Exports of one graph: 1, and the variants 2 and 3, each of which has a few rows and a kernel of its own."""
    folder, found = tmp_path_factory.mktemp("exports"), {}
    for number in (1, 2, 3):
        rows, kernel = table(200, 8), table(8, 4, seed=1)
        if number > 1:
            rows[[number, 7]] += np.float32(number)
            kernel[0] -= np.float32(0.3)
        found[number] = export_ranker(folder / str(number), rows, kernel)
    return found


def export_ranker(path: Path, rows: np.ndarray, kernel: np.ndarray) -> Path:
    import tensorflow as tf

    items, dense = tf.Variable(rows, name="items"), tf.Variable(kernel, name="dense")

    def serve(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": tf.nn.sigmoid(tf.nn.relu(tf.matmul(tf.gather(items, ids), dense)))}

    return export_function(path, serve, [tf.TensorSpec([None], tf.int64, name="ids")], items=items, dense=dense)


def stored_bytes(folder: Path) -> int:
    """Return the bytes of the files below a folder, each counted once."""
    found = [path.stat() for name in ("artefacts", "tables") for path in (folder / name).rglob("*") if path.is_file()]
    return sum({status.st_ino: status.st_size for status in found}.values())


def test_variants_share_the_base_and_answer_like_artifacts_of_their_own(
    proxy: ProxyProcess, exports: dict[int, Path], tmp_path: Path
) -> None:
    with proxy.client() as client:
        stored = []
        for number, export in exports.items():
            timeline = tmp_path / f"timeline-{number}"
            if number == 1:
                timeline.mkdir()
            else:
                make_delta(exports[1], export, timeline)
            client.deploy(
                "variants",
                exports[1],
                version=number,
                optimize=True,
                precision="fp32",
                follow=str(timeline),
                wait=True,
                timeout=_OPTIMIZED_S,
            )
            stored.append(stored_bytes(proxy.state_dir))
        assert stored[0] == stored[1] == stored[2] > 0
        assert len({version["path"] for version in client.versions("variants")["versions"]}) == 1
        address = "http://" + client.status()["hosts"][0]["endpoints"]["rest"]
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http:
            answers = {
                number: decode(http.post(f"/v1/models/variants/versions/{number}:eas", content=encode(IDS)).content)
                for number in exports
            }
    assert not np.array_equal(answers[2]["score"], answers[3]["score"])
    optimize(exports[3], tmp_path / "artifact", precision="fp32")
    with processor.Model(tmp_path / "artifact") as model:
        np.testing.assert_array_equal(answers[3]["score"], model.run(IDS)["score"])


def test_a_deployed_tier_decides_where_tables_are(proxy: ProxyProcess, exports: dict[int, Path]) -> None:
    tiers = {1: {"tier": "mapped"}, 2: {"tier": "resident"}, 3: {"tier": "tiered", "memory": "1MB"}}
    with proxy.client() as client:
        for number, tables in tiers.items():
            client.deploy(
                "tiers",
                exports[1],
                version=number,
                optimize=True,
                precision="fp32",
                wait=True,
                timeout=_OPTIMIZED_S,
                tables=tables,
            )
        address = "http://" + client.status()["hosts"][0]["endpoints"]["rest"]
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http:
            answers = [
                decode(http.post(f"/v1/models/tiers/versions/{number}:eas", content=encode(IDS)).content)["score"]
                for number in tiers
            ]

    def reported() -> list[str | None]:
        (file,) = (proxy.state_dir / "hosts").glob("*/stats.json")
        found = json.loads(file.read_text())["models"].get("tiers", {"versions": {}})["versions"]
        tables = [found.get(str(number), {}).get("tables") for number in tiers]
        return [None if kept is None else kept["tier"] for kept in tables]

    assert np.array_equal(answers[1], answers[0])
    assert np.array_equal(answers[2], answers[0])
    wait_for(lambda: reported() == [None, "resident", "tiered"], what="the tiers in the host's statistics")


def test_deltas_in_a_store_are_followed(
    proxy: ProxyProcess, exports: dict[int, Path], tmp_path: Path, stored_deltas: StoreUrl
) -> None:
    make_delta(exports[1], exports[2], tmp_path / "timeline")
    upload = TimelineUpload(tmp_path / "timeline", stored_deltas)
    with proxy.client() as client:
        client.deploy(
            "stored", exports[1], version=1, optimize=True, follow=str(stored_deltas), wait=True, timeout=_OPTIMIZED_S
        )
        address = "http://" + client.status()["hosts"][0]["endpoints"]["rest"]
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http:
            assert upload.step() == 1
            answer = http.post("/v1/models/stored:eas", content=encode(IDS), headers={"x-min-epoch": "1"})
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-model-epoch"] == "1"


def test_a_deployment_fails_if_its_timeline_does_not_fit(
    proxy: ProxyProcess, exports: dict[int, Path], tmp_path: Path
) -> None:
    foreign = TimelineWriter(tmp_path / "foreign", START, "a test")
    publish(foreign)
    with proxy.client() as client:
        for _ in range(2):
            with pytest.raises(PreconditionError, match=r"/1: ready at epoch 0, but host-0 does not follow .*foreign"):
                client.deploy(
                    "misfits",
                    exports[1],
                    version=1,
                    optimize=True,
                    follow=str(foreign.folder),
                    wait=True,
                    timeout=_OPTIMIZED_S,
                )
        (event,) = wait_for(lambda: [event for event in client.events(model="misfits") if event["kind"] == "follow"])
        assert "another lineage" in event["message"]
        with pytest.raises(NotFoundError, match="missing: not there, expected a folder"):
            client.deploy("misfits", exports[1], version=2, optimize=True, follow=str(tmp_path / "missing"))
        with pytest.raises(PreconditionError, match="a model that is not live, expected what `graph-tools optimize"):
            client.deploy("misfits", exports[1], version=3, follow=str(foreign.folder))
        (tmp_path / "fits").mkdir()
        client.deploy(
            "misfits",
            exports[1],
            version=1,
            optimize=True,
            follow=str(tmp_path / "fits"),
            wait=True,
            timeout=_OPTIMIZED_S,
        )

# SPDX-License-Identifier: Apache-2.0
"""Guard, history and machine view with the counters of a real host."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graph_tools.store.timeline_writer import TimelineWriter
from helpers.hosts.contract_messages import encode
from helpers.models.live_models import START, export_live, publish
from helpers.models.model_builders import build_linear
from helpers.proxies.proxy_runs import ProxyProcess, wait_for

pytestmark = pytest.mark.slow

LIMIT = 7.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), host="python") as running:
        yield running


def build_bad(path: Path, *, fails: bool) -> Path:
    """Build a linear model that fails or returns NaN if an input is larger than a limit."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        sums = tf.reduce_sum(tf.where(x < LIMIT, x, float("nan")), axis=1, keepdims=True)
        with tf.control_dependencies([tf.debugging.assert_less(x, LIMIT)] if fails else []):
            return {"y": tf.identity(sums)}

    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def test_variants_that_fail_or_answer_nan_and_a_shadow_that_ranks_otherwise_are_taken_back(
    proxy: ProxyProcess, tmp_path: Path
) -> None:
    with proxy.client() as client:
        client.deploy("ranking", build_linear(tmp_path / "3"), wait=True, timeout=120, slo_p99_ms=60_000)
        client.deploy("ranking", build_bad(tmp_path / "4", fails=True), traffic=40, wait=True, timeout=120)
        client.deploy("ranking", build_bad(tmp_path / "6", fails=False), traffic=40, wait=True, timeout=120)
        client.deploy("ranking", build_linear(tmp_path / "5", scale=-1.0), shadow=100, wait=True, timeout=120)
        client.guard("ranking", min_requests=30, window_s=60, min_correlation=0.9)
        address = "http://" + client.status()["hosts"][0]["endpoints"]["rest"]
        body = encode({"x": np.array([[8.0, 2.0, 3.0], [1.0, 2.0, 4.0], [2.0, 1.0, 1.0]], np.float32)})
        keys = itertools.count()

        def shown() -> dict[int, dict[str, Any]]:
            return {version["version"]: version for version in client.versions("ranking")["versions"]}

        def asked() -> bool:
            for _ in range(20):
                http.post("/v1/models/ranking:eas", content=body, headers={"x-routing-key": f"user-{next(keys)}"})
            now = shown()
            return now[4]["traffic"] == now[6]["traffic"] == 0 and now[5]["shadow"] == 0

        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http:
            wait_for(asked, 180)
            assert {version["role"] for version in shown().values()} == {"baseline", "rolled back"}
            wait_for(
                lambda: {http.post("/v1/models/ranking:eas", content=body).status_code for _ in range(20)} == {200}
            )

            def busy() -> bool:
                for _ in range(20):
                    http.post("/v1/models/ranking:eas", content=body)
                return max(point[1] for point in client.history()["models"]["ranking"]["3"]) > 5

            wait_for(busy)
        bad = {
            event["version"]: event
            for event in client.events(model="ranking", limit=1000)
            if event["data"].get("ruling") == "bad"
        }
        assert "requests failed" in bad[4]["message"]
        assert "rank correlation -" in bad[5]["message"]
        assert "NaN" in bad[6]["message"]
        assert {bad[number]["data"]["action"] for number in (4, 5, 6)} == {"rollback"}
        points = client.history()["models"]["ranking"]["3"]
        assert all(0 < point[3] <= point[4] for point in points if point[3] is not None)
        owners = {
            owner["version"]: owner["cpus"] for owner in client.machine()["owners"] if owner["model"] == "ranking"
        }
        assert set(owners) == {3, 4, 5, 6}
        assert all(owners.values())


def test_a_real_baseline_returns_when_it_drifts_from_a_shadow_that_follows_nothing(
    proxy: ProxyProcess, tmp_path: Path
) -> None:
    artifact = export_live(tmp_path)
    writer = TimelineWriter(tmp_path / "timeline", START, "a test")
    with proxy.client() as client:
        client.deploy("live", artifact, version=1, follow=str(writer.folder), wait=True, timeout=120)
        client.deploy("live", artifact, version=2, shadow=100, wait=True, timeout=120)
        # Mirrored requests run when nothing else does, so on a busy machine few of them come to a window.
        client.guard("live", action="epoch", min_requests=20, window_s=60, max_difference=1.0)
        body = encode({"a": np.arange(8, dtype=np.int64)})
        address = "http://" + client.status()["hosts"][0]["endpoints"]["rest"]

        def shown() -> dict[str, Any]:
            return client.versions("live")["versions"][0]

        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http:
            epochs: list[str] = []

            def asked() -> str:
                # Each call has enough requests for a ruling.
                answers = [http.post("/v1/models/live:eas", content=body) for _ in range(20)]
                assert {answer.status_code for answer in answers} == {200}
                epochs.extend(answer.headers["x-model-epoch"] for answer in answers)
                return epochs[-1]

            def judged(ruling: str) -> bool:
                asked()
                return client.guard("live")["versions"].get("2", {}).get("ruling") == ruling

            wait_for(lambda: judged("ok"), 180)
            publish(writer, 1000.0)
            # It may be taken back before the last one of twenty requests.
            wait_for(lambda: asked() and "1" in epochs)
            wait_for(lambda: asked() == "0", 180)
            assert shown()["epoch"] == 0
            assert client.versions("live")["versions"][1]["shadow"] == 100
            publish(writer, 0.01)
            wait_for(lambda: judged("ok"), 180)
            assert asked() == "0", "it stays there"
            client.resume("live")
            wait_for(lambda: asked() == "2")
        (event,) = [event for event in client.events(model="live") if event["data"].get("ruling") == "bad"]
        assert event["version"] == 1
        assert event["message"].startswith("live/1: held at epoch 0, the last one within its limits; compared with 2")
        assert event["data"]["action"] == "epoch"

# SPDX-License-Identifier: Apache-2.0
"""What a host counts, as Prometheus and stats.json tell it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import processor
from helpers.hosts.host_clients import ONE, QUICK, X
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.hosts.tfserving_messages import tfserving_request
from helpers.system.waiting import wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(host: processor.Host) -> Samples:
    families = list(text_string_to_metric_families(host.metrics()))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def test_every_documented_metric_is_there(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], repository: Path
) -> None:
    document = (repository / "docs/model_host.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`((?:recprocessor|:tensorflow)[\w:]+)`", document))
    assert len(documented) > 15
    state.serve(host, {"m": model_of(scaled_models[1])})
    host.process("eas", ONE)
    written = {line.split()[2] for line in host.metrics().splitlines() if line.startswith("# TYPE")}
    assert documented - written == set()


def test_requests_are_counted_by_model_version_and_outcome(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    versions = {str(n): {"path": str(scaled_models[n])} for n in (1, 2)}
    state.serve(host, {"m": {"baseline": 1, "versions": versions}})
    for _ in range(3):
        host.process("eas", ONE)
    host.process("tfserving", tfserving_request({"x": X}, name="m", version=2))
    for request, kind in [
        ({"data": b"\xff"}, processor.InvalidArgumentError),
        ({"data": ONE, "model_version": 9}, processor.NotFoundError),
        ({"data": ONE, "deadline": 1.0}, processor.DeadlineExceededError),
    ]:
        with pytest.raises(kind):
            host.process("eas", **request)

    async def ask() -> None:
        await asyncio.gather(*(host.aprocess("eas", ONE, model_version=2) for _ in range(5)))

    asyncio.run(ask())
    samples = samples_of(host)
    requests = "recprocessor_requests_total"
    assert value(samples, requests, model="m", version="1", protocol="eas", outcome="OK") == 3
    assert value(samples, requests, model="m", version="1", protocol="eas", outcome="INVALID_ARGUMENT") == 1
    assert value(samples, requests, model="m", version="1", protocol="eas", outcome="DEADLINE_EXCEEDED") == 1
    assert value(samples, requests, model="m", version="2", protocol="eas", outcome="OK") == 5
    assert value(samples, requests, model="m", version="2", protocol="tfserving", outcome="OK") == 1
    assert value(samples, requests, model="", version="", protocol="eas", outcome="NOT_FOUND") == 1
    assert value(samples, "recprocessor_shed_total", model="m", version="1", reason="deadline") == 1
    assert value(samples, "recprocessor_scores_total", model="m", version="2", kind="finite") == 6
    assert value(samples, "recprocessor_scores_total", model="m", version="2", kind="nan") == 0
    assert value(samples, "recprocessor_arm_requests_total", model="m", version="1", arm="baseline") == 5
    assert value(samples, "recprocessor_arm_requests_total", model="m", version="2", arm="pinned") == 6
    duration = "recprocessor_request_duration_seconds"
    assert value(samples, f"{duration}_count", model="m", version="2", protocol="eas") == 5
    run = "recprocessor_run_duration_seconds"
    assert value(samples, f"{run}_count", model="m", version="1") == 3
    assert 0 < value(samples, f"{run}_sum", model="m", version="1") < 1
    assert value(samples, "recprocessor_model_state", model="m", version="1", state="ready") == 1
    assert value(samples, "recprocessor_host_generation") == state.generation
    # The parser puts the suffix of a counter where it finds none.
    alias = ":tensorflow:serving:request_count_total"
    assert ":tensorflow:serving:request_count{" in host.metrics()
    assert value(samples, alias, model_name="m", version="2", status="OK", API="Predict", entrypoint="GRPC") == 1


def test_histograms_are_cumulative(host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]) -> None:
    state.serve(host, {"m": model_of(scaled_models[1])})
    for _ in range(50):
        host.process("eas", ONE)
    buckets: dict[Any, list[tuple[float, float]]] = {}
    for (name, labels), count in samples_of(host).items():
        if name.endswith("_bucket"):
            rest = frozenset(label for label in labels if label[0] != "le")
            buckets.setdefault((name, rest), []).append((float(dict(labels)["le"]), count))
    assert len(buckets) >= 7
    for bounds in buckets.values():
        counts = [count for _, count in sorted(bounds)]
        assert counts == sorted(counts)
        assert max(bounds)[0] == float("inf")


def test_counters_survive_a_replacement_and_end_with_the_version(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    labels = {"model": "m", "version": "1", "protocol": "eas", "outcome": "OK"}
    state.serve(host, {"m": model_of(scaled_models[1], config=QUICK)})
    host.process("eas", ONE)
    state.serve(host, {"m": model_of(scaled_models[2], config=QUICK)})
    host.process("eas", ONE)
    assert value(samples_of(host), "recprocessor_requests_total", **labels) == 2
    state.serve(host, {"m": model_of(scaled_models[2], 2, config=QUICK)})
    wait_until(lambda: 'version="1"' not in host.metrics(), "counters that go")


def test_stats_are_written_every_second(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1])})
    for _ in range(7):
        host.process("eas", ONE)
    path = state.path / "hosts" / "host-0" / "stats.json"

    def stats() -> dict[str, Any]:
        if not path.exists():
            return {}
        versions: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"].get("m", {})
        return versions.get("versions", {}).get("1", {})

    wait_until(lambda: stats().get("requests") == 7, "stats.json")
    told = stats()
    assert told["outcomes"] == {"OK": 7}
    assert told["protocols"] == {"eas": {"OK": 7}}
    for key in ("duration_us", "run_us", "queue_us"):
        assert told[key]["count"] == 7
        assert told[key]["buckets"][-1] == [pytest.approx({"duration_us": 59_316_416.015}.get(key, 10_000_000)), 7]
    assert told["duration_us"]["p50"] >= told["run_us"]["p50"]
    assert told["scores"] == {"answers": 7, "count": 7, "nan": 0, "infinite": 0}
    assert told["in_flight"] == told["queued"] == 0


def test_checks_of_rows_are_counted(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"m": model_of(scaled_models[1], batching={"mode": "zero_wait"})})
    samples = samples_of(host)
    labels = {"model": "m", "version": "1"}
    for name in ("recprocessor_batch_checks_total", "recprocessor_batch_differs"):
        assert samples[(name, frozenset(labels.items()))] == 0
    path = state.path / "hosts" / "host-0" / "stats.json"

    def told() -> dict[str, Any]:
        version: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"]["m"]["versions"]["1"]
        return version

    wait_until(lambda: path.exists() and "batch_checks" in path.read_text(encoding="utf-8"), "stats.json")
    assert told()["batch_checks"] == 0
    assert told()["batch_signatures"]["serving_default"] == {"rows": "independent", "reason": None}

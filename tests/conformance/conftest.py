# SPDX-License-Identifier: Apache-2.0
"""One host of each kind with the same models; the tests of this folder send requests as real clients do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from helpers.hosts.served_hosts import KINDS, ServedHost, model, served, version
from helpers.models import example_models, model_builders


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test against every kind of host; HOST_KINDS=python,go for some."""
    if "host_kind" in metafunc.fixturenames:
        kinds = os.environ.get("HOST_KINDS", ",".join(KINDS)).split(",")
        metafunc.parametrize("host_kind", kinds, scope="session")


@pytest.fixture(scope="session")
def served_models(models_root: Path, string_model: Path, slow_model: Path, gated_model: Path) -> dict[str, Any]:
    """What the hosts serve.

    `ranking`: version 1 computes `linear_score`, version 2 twice that; labels stable and canary. `split`: the same,
    half of the users each. `text`: see `build_string`. `slow`: see `build_slow`; one request runs, two wait.
    `held`: the same, but requests run until a test releases them, see `build_gated`. `examples`: see `build_examples`.
    `batched`: version 1 of `ranking`, with its requests put together.
    """
    once, twice = (model_builders.build_linear(models_root / f"linear-{scale}", scale) for scale in (1.0, 2.0))
    examples = example_models.build_examples(models_root / "examples")
    both = {1: version(once), 2: version(twice)}
    return {
        "ranking": model(1, both, labels={"stable": 1, "canary": 2}),
        "split": model(1, both, routing={"layer": "split", "arms": [{"version": 2, "offset": 0, "weight": 5000}]}),
        "text": model(3, {3: version(string_model)}),
        "slow": model(1, {1: version(slow_model, config={"worker_threads": 1}, limits={"max_queue": 2})}),
        "held": model(1, {1: version(gated_model, config={"worker_threads": 1}, limits={"max_queue": 2})}),
        "examples": model(1, {1: version(examples)}),
        "batched": model(1, {1: version(once, batching={"mode": "timed", "max_rows": 64, "max_wait_us": 500})}),
    }


@pytest.fixture(scope="session")
def start_host(host_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`with start_host(models, arguments) as host:` for tests that need one of their own."""

    def start(models: dict[str, Any], arguments: tuple[str, ...] = (), **more: Any) -> Any:
        return served(host_kind, tmp_path_factory.mktemp("state"), models, arguments, **more)

    return start


@pytest.fixture(scope="session")
def host(start_host: Callable[..., Any], served_models: dict[str, Any]) -> Iterator[ServedHost]:
    """The host that most tests share."""
    with start_host(served_models) as started:
        yield started
        assert started.process.poll() is None, started.log.read_text()[-2000:]


@pytest.fixture(scope="session")
def channel(host: ServedHost) -> Iterator[grpc.Channel]:
    """A channel to it, for messages of any size."""
    with grpc.insecure_channel(host.grpc, [("grpc.max_receive_message_length", -1)]) as opened:
        yield opened


@pytest.fixture(scope="session")
def http(host: ServedHost) -> Iterator[httpx.Client]:
    """A client for paths on it."""
    with httpx.Client(base_url=f"http://{host.rest}", timeout=60) as client:
        yield client

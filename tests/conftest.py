# SPDX-License-Identifier: Apache-2.0
"""Provide models for all tests; TensorFlow exports each when a test first needs it."""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx._config
import httpx._transports.default
import hypothesis
import pytest

from graph_tools.verification import runners
from graph_tools.verification.elsewhere import Elsewhere
from helpers.models import gate, model_builders

REPOSITORY = Path(__file__).resolve().parent.parent

# Files that take a minute or more. `make test` distributes whole files to its workers: these first, in this order, and
# then the others in pytest's order, because a long file at the end would keep the other workers waiting.
LONGEST_FIRST = [
    "conformance/test_deadly_versions.py",
    "graph_tools/passes/fuse/test_fuse_recurrent_layers.py",
    "test_packaging.py",
    "hosts/test_go.py",
    "load_tests/test_bench_hosts.py",
    "graph_tools/test_user_items.py",
    "load_tests/test_bench_large_table.py",
    "demo/test_proxy_demo.py",
    "demo/test_demo.py",
    "demo/test_online_demo.py",
    "libprocessor/test_cpp.py",
    "conformance/test_memory.py",
    "graph_tools/test_foreign_ops.py",
    "load_tests/cost_model/test_bench_cost_model.py",
    "serving_proxy/deploy/test_full_disk.py",
    "load_tests/test_bench_deepctr.py",
    "serving_proxy/cores/test_end_to_end.py",
    "serving_proxy/guard/test_end_to_end.py",
    "test_docs.py",
]

# `pytest --hypothesis-profile=fuzz`: many examples, different ones each time.
hypothesis.settings.register_profile("fuzz", max_examples=3000, deadline=None, print_blob=True)
hypothesis.settings.register_profile("suite", max_examples=100, deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


# A shell starts programs in the background so that they ignore SIGINT, and so would all programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what stays until the end: ten thousand tests and the modules that they import.

    Otherwise it takes a quarter of the time of collecting tests, and goes through all of this again while they run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    places = {REPOSITORY / "tests" / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def models_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the models of this session are."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def make_linear_model() -> Callable[..., Path]:
    """`make_linear_model(path, scale)`: models with equal variable names and other values."""
    return model_builders.build_linear


@pytest.fixture(scope="session")
def tiny_model(models_root: Path) -> Path:
    """x float32 [batch, 3] -> y float32 [batch, 1]; `model_builders.linear_score` is what it computes."""
    return model_builders.build_linear(models_root / "tiny")


@pytest.fixture(scope="session")
def string_model(models_root: Path) -> Path:
    """Strings, numbers, and a table initialized from an asset; see `model_builders.build_string`."""
    return model_builders.build_string(models_root / "string")


@pytest.fixture(scope="session")
def tf1_model(models_root: Path) -> Path:
    """A TF 1 graph with resource variables; computes what `tiny_model` does."""
    return model_builders.build_tf1(models_root / "tf1")


@pytest.fixture(scope="session")
def tf1_ref_model(models_root: Path) -> Path:
    """A TF 1 graph with reference variables (VariableV2); computes what `tiny_model` does."""
    return model_builders.build_tf1(models_root / "tf1_ref", use_resource=False)


@pytest.fixture(scope="session")
def multi_signature_model(models_root: Path) -> Path:
    """Signatures serving_default, total and length; see `model_builders.build_multi_signature`."""
    return model_builders.build_multi_signature(models_root / "multi_signature")


@pytest.fixture(scope="session")
def echo_model(models_root: Path) -> Path:
    """A signature per dtype, x of any shape -> y, the same; see `model_builders.build_echo`."""
    return model_builders.build_echo(models_root / "echo")


@pytest.fixture(scope="session")
def slow_model(models_root: Path) -> Path:
    """A request takes as long as it asks for; see `model_builders.build_slow`."""
    return model_builders.build_slow(models_root / "slow")


@pytest.fixture(scope="session")
def gated_model(models_root: Path) -> Path:
    """A request runs until it is let go; see `gate.build_gated`."""
    return gate.build_gated(models_root / "gated")


@pytest.fixture(scope="session", autouse=True)
def clients_share_certificates() -> Iterator[None]:
    """Let HTTP clients share the certificates that they trust, which takes each 25 ms of CPU time to read.

    Clients that are given certificates read them as ever.
    """
    create = httpx._config.create_ssl_context
    shared = functools.cache(create)

    def find(verify: ssl.SSLContext | str | bool = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if not isinstance(verify, bool) or cert or {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            return create(verify, cert, trust_env)
        return shared(verify)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", find)
        yield


class _Kept(Elsewhere):
    """A process that goes on after a verification without an error."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.close()


@pytest.fixture(scope="session", autouse=True)
def verifications_share_a_process() -> Iterator[Callable[[bool], Elsewhere]]:
    """Let verifications run models without oneDNN in one process, because TensorFlow takes seconds to start.

    The value starts that process, if it does not run yet.

    graph_tools/verification/test_non_numbers.py tests processes as verifications start and end them.
    """
    kept: dict[bool, _Kept] = {}

    def start(onednn: bool) -> _Kept:
        if onednn not in kept or kept[onednn].ended:
            kept[onednn] = _Kept(onednn)
        return kept[onednn]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runners, "Elsewhere", start)
        yield start
    for process in kept.values():
        process.close()

# SPDX-License-Identifier: Apache-2.0
"""Provide the benchmark programs, the library, and a small model."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from load_tests._programs import find_library, find_program
from load_tests.workloads import ensure_model


def _built(find: Callable[[], Path]) -> Path:
    try:
        return find()
    except FileNotFoundError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI builds everything: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bench_serving() -> Path:
    return _built(lambda: find_program("bench_serving"))


@pytest.fixture(scope="session")
def bench_lifecycle() -> Path:
    return _built(lambda: find_program("bench_lifecycle"))


@pytest.fixture(scope="session")
def bench_open_loop() -> Path:
    return _built(lambda: find_program("bench_open_loop"))


@pytest.fixture(scope="session")
def library() -> Path:
    return _built(find_library)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return ensure_model("tiny")

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import processor


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Iterator[processor.Model]:
    with processor.Model(tiny_model) as model:
        yield model


@pytest.fixture(scope="module")
def strings(string_model: Path) -> Iterator[processor.Model]:
    with processor.Model(string_model) as model:
        yield model


@pytest.fixture(scope="module")
def multi(multi_signature_model: Path) -> Iterator[processor.Model]:
    with processor.Model(multi_signature_model) as model:
        yield model


@pytest.fixture(scope="module")
def echo(echo_model: Path) -> Iterator[processor.Model]:
    with processor.Model(echo_model, {"signature_name": "DT_FLOAT"}) as model:
        yield model

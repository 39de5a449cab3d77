# SPDX-License-Identifier: Apache-2.0
"""Test that a model that is read and written again computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import assert_same_answers, requests_for


def rewritten(path: Path, out: Path) -> Path:
    model = read_model(path)
    PruneUnreachable().apply(model)
    write_saved_model(model, out)
    return out


@pytest.mark.parametrize(
    "name", ["tiny_model", "string_model", "tf1_model", "multi_signature_model", "wdl_model", "idwdl_model"]
)
def test_written_model_answers_as_its_source(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source = request.getfixturevalue(name)
    out = rewritten(source, tmp_path / "out")
    assert_same_answers(source, out, requests_for(source), exact=True)


def test_written_model_is_read_and_written_again(string_model: Path, tmp_path: Path) -> None:
    once = rewritten(string_model, tmp_path / "once")
    twice = rewritten(once, tmp_path / "twice")
    assert_same_answers(string_model, twice, requests_for(string_model), exact=True)
    assert len(read_model(twice).graph) == len(read_model(once).graph)


def test_written_model_is_served_by_the_library(string_model: Path, tmp_path: Path) -> None:
    import processor

    out = rewritten(string_model, tmp_path / "out")
    inputs = {"item": ["apple", "none of them"], "price": np.array([1.5, 2.5], np.float32)}
    with processor.Model(string_model) as before, processor.Model(out) as after:
        first, second = before.run(inputs), after.run(inputs)
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])


def test_variable_without_value_is_named(tiny_model: Path, tmp_path: Path) -> None:
    model = read_model(tiny_model)
    PruneUnreachable().apply(model)
    name = sorted(model.variables)[0]
    del model.variables[name]
    with pytest.raises(ConversionError, match=f"'{name}'"):
        write_saved_model(model, tmp_path / "out")

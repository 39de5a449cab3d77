# SPDX-License-Identifier: Apache-2.0
"""Test the tables and the JSON of `graph-tools inspect` and `graph-tools diff`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from helpers.graph_tools import cut_models
from helpers.graph_tools.cut_models import report_of, run


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut_models.build_sparse(tmp_path_factory.mktemp("sparse") / "model")


def test_one_model(sparse: Path) -> None:
    found = run("inspect", sparse)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith(f"{sparse}\n")
    assert re.search(r"^training systems +deeprec$", found.out, re.M)
    assert re.search(r"^custom ops +\d$", found.out, re.M)
    assert re.search(r"^custom ops: .*KvResourceGather", found.out, re.M)
    assert re.search(r"^emb +deeprec table +40 x 8 +float32 +1\.6 kB +absent key: zero$", found.out, re.M)
    assert re.search(r"^serving_default +inputs +item +int64 +\[\?\]$", found.out, re.M)
    assert re.search(r"^ +outputs +rows +float32 +any$", found.out, re.M)
    assert "Not needed for serving" in found.out


def test_models_side_by_side(sparse: Path, tiny_model: Path) -> None:
    found = run("inspect", sparse, tiny_model)
    assert found.out.splitlines()[:2] == [f"a {sparse}", f"b {tiny_model}"]
    assert re.search(r"^ +a +b$", found.out, re.M)
    assert re.search(r"^training systems +deeprec +TensorFlow$", found.out, re.M)
    assert "Signatures (b)" in found.out
    data = report_of("inspect", sparse, tiny_model)
    assert [model["path"] for model in data["models"]] == [str(sparse), str(tiny_model)]


def test_needed_variables_come_first_and_a_shared_tensor_is_not_a_copy(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    weights = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    module.slot = tf.Variable(weights * 2, name="bigger_slot")
    module.w = tf.Variable(weights, name="weights")
    module.also = module.w
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    module.serve = tf.function(lambda x: {"y": tf.gather(module.w, x)}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": module.serve})
    found = run("inspect", tmp_path / "m")
    held = [line for line in found.out.splitlines() if " variable " in line]
    assert held[0].startswith("weights")
    assert "copy of" not in found.out
    assert re.search(r"^variables needed +1, 2\.0 kB$", found.out, re.M)


def test_checkpoint_of_another_model(tiny_model: Path, string_model: Path) -> None:
    assert run("inspect", tiny_model, "--checkpoint", tiny_model / "variables" / "variables").code == 0
    found = run("inspect", tiny_model, "--checkpoint", string_model / "nothing")
    assert (found.code, found.out) == (2, "")


def test_models_that_differ(sparse: Path, tiny_model: Path) -> None:
    found = run("diff", sparse, tiny_model)
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[:2] == [f"a {sparse}", f"b {tiny_model}"]
    assert re.search(r"^serving_default/input/item +int64 \[\?\] +not there$", found.out, re.M)
    assert re.search(r"^KvResourceGather +1 +0 +-1$", found.out, re.M)
    assert found.out.splitlines()[-1] == "signatures differ"
    assert report_of("diff", sparse, tiny_model)["same_interface"] is False


def test_models_that_are_equal(tiny_model: Path) -> None:
    found = run("diff", tiny_model, tiny_model)
    assert found.out.splitlines()[-1] == "equal in signatures, ops, variables, tables and assets"

# SPDX-License-Identifier: Apache-2.0
"""Test that a pass that changes outputs is found, down to its site, and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut, fuse, verify
from graph_tools.errors import UsageError, VerificationError
from graph_tools.options import CutOptions
from graph_tools.progress import Silent
from graph_tools.report.cut import LeftOut
from graph_tools.rewriting.protocol import PassResult
from graph_tools.verbs.leaving_out import Attempts, Choice
from graph_tools.verification.settings import settings_here


def build_titles(path: Path, views: bool) -> Path:
    """Export title int64 [batch, 4] and user int64 [batch] -> y: towers over an average of nothing where a title is 0s.

    With `views` there are reshapes around the products, so that TensorFlow computes relu by itself, and NaN stays.
    """
    import tensorflow as tf

    rng = np.random.default_rng(3)

    class Titles(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = tf.Variable(rng.normal(size=(40, 6)).astype(np.float32))
            self.users = tf.Variable(rng.normal(size=(30, 6)).astype(np.float32))
            self.kernels = [tf.Variable(rng.normal(size=(6, 8)).astype(np.float32)) for _ in range(2)]
            self.biases = [tf.Variable(rng.normal(size=8).astype(np.float32)) for _ in range(2)]

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 4], tf.int64, name="title"),
                tf.TensorSpec([None], tf.int64, name="user"),
            ]
        )
        def serve(self, title: Any, user: Any) -> Any:
            counted = tf.cast(title != 0, tf.float32)[:, :, None]
            mean = tf.reduce_sum(tf.gather(self.words, title) * counted, 1) / tf.reduce_sum(counted, 1)
            sides = []
            for x, kernel, bias in zip((mean, tf.gather(self.users, user)), self.kernels, self.biases, strict=True):
                product = tf.tensordot(x, kernel, [[1], [0]]) if views else tf.matmul(x, kernel)
                sides.append(tf.nn.relu(tf.nn.bias_add(product, bias)))
            return {"y": tf.sigmoid(tf.reduce_sum(sides[0] * sides[1], 1))}

    module = Titles()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


@pytest.fixture(autouse=True)
def with_onednn() -> None:
    if not settings_here().onednn:
        pytest.skip("TensorFlow runs without oneDNN here, and keeps NaN everywhere")


def test_the_pass_is_left_out_that_makes_a_number_of_nan(tmp_path: Path) -> None:
    source = build_titles(tmp_path / "in", views=True)
    report = cut(source, tmp_path / "out")
    assert report.verification is not None
    assert report.verification.passed
    left = {left_out.name for left_out in report.left_out}
    # Shapes that are folded let TensorFlow drop the reshape itself.
    assert "eliminate_noop_reshapes" in left
    assert left <= {"eliminate_noop_reshapes", "fold_constants"}
    assert any(left_out.site for left_out in report.left_out)
    assert "elements differ" in report.left_out[0].reason
    passes = {pass_.name: pass_ for pass_ in report.passes}
    assert passes["eliminate_noop_reshapes"].refused
    again = verify(source, tmp_path / "out")
    assert again.passed
    assert again.outputs[0].nan_a == again.outputs[0].nan_b > 0


@pytest.mark.parametrize("views", [False, True])
def test_a_fused_tower_answers_an_empty_title_as_the_original(tmp_path: Path, views: bool) -> None:
    report = fuse(build_titles(tmp_path / "in", views), tmp_path / "out", precision="fp32")
    assert not any(left_out.name == "fuse_dense_towers" for left_out in report.left_out)
    assert sum(pass_.applied for pass_ in report.fused if pass_.name == "fuse_dense_towers")
    assert report.verification is not None
    output = report.verification.outputs[0]
    assert output.nan_apart == 0
    assert (output.nan_a > 0) == views


def test_a_pass_is_skipped_on_request(tmp_path: Path) -> None:
    source = build_titles(tmp_path / "in", views=True)
    left = ("eliminate_noop_reshapes", "fold_constants")
    report = cut(source, tmp_path / "out", options=CutOptions(skip_passes=left))
    assert not report.left_out
    assert all(pass_.name not in left for pass_ in report.passes)
    with pytest.raises(UsageError, match="--skip-pass fold: no such pass, expected one of: eliminate_assertions"):
        cut(source, tmp_path / "no", options=CutOptions(skip_passes=("fold",)))
    with pytest.raises(UsageError, match="prune_unreachable: nothing can be written without it"):
        fuse(source, tmp_path / "no", skip_passes=["prune_unreachable"])


class Trial:
    """Converts nothing, and fails with some sites, as `Attempts` sees it."""

    def __init__(self, sites: dict[str, list[str]], bad: set[tuple[str, str]]) -> None:
        self.sites, self.bad, self.count = sites, bad, 0

    def __call__(self, choice: Choice, place: bool) -> list[LeftOut]:
        self.count += 1
        gone = {(left_out.name, left_out.site) for left_out in choice.left_out}
        results = [
            PassResult(name, applied=len(sites), at=[site for site in sites if (name, site) not in gone])
            for name, sites in self.sites.items()
            if (name, None) not in gone
        ]
        left = {(result.name, site) for result in results for site in result.at} & self.bad
        if left:
            error = VerificationError("differs", {"verification": {"reasons": [f"differs by {sorted(left)[0][1]}"]}})
            error.passes = results
            raise error
        return list(choice.left_out)


def test_bisection_finds_single_sites_in_few_attempts() -> None:
    sites = {name: [f"{name}_{i}" for i in range(100)] for name in ("one", "two", "three", "four")}
    trial = Trial(sites, {("two", "two_41"), ("two", "two_97"), ("four", "four_0")})
    found = Attempts(trial, Silent()).run()
    assert {(left_out.name, left_out.site) for left_out in found} == {
        ("two", "two_41"),
        ("two", "two_97"),
        ("four", "four_0"),
    }
    assert {left_out.reason for left_out in found} <= {"differs by two_41", "differs by two_97", "differs by four_0"}
    assert trial.count < 60


def test_a_difference_that_no_pass_explains_keeps_its_error() -> None:
    trial = Trial({"prune_unreachable": ["site"], "other": ["a", "b"]}, {("prune_unreachable", "site")})
    with pytest.raises(VerificationError, match="differs"):
        Attempts(trial, Silent()).run()
    assert trial.count == 2


def test_a_pass_with_many_bad_sites_is_left_out_completely() -> None:
    sites = [f"site_{i}" for i in range(20)]
    found = Attempts(Trial({"other": sites, "good": ["x"]}, {("other", site) for site in sites}), Silent()).run()
    assert [(left_out.name, left_out.site) for left_out in found] == [("other", None)]

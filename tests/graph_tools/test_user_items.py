# SPDX-License-Identifier: Apache-2.0
"""Test models that are split into a user's part and the items': all forms of requests are verified and served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools import fuse, verify
from graph_tools.errors import UsageError
from graph_tools.graph.op_library import load_library
from graph_tools.passes.fuse.split_user_items import SplitUserItems
from graph_tools.readers import read_model
from graph_tools.report.fuse import FusedPass, FuseReport
from helpers.graph_tools.stock_answers import Feeds, answers

MANIFEST = "assets.extra/recprocessor/manifest.json"
USERS = ["user_id", "user_words"]
BUCKETS, DIM = 50, 8


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("users") / "model")


@pytest.fixture(scope="module")
def split(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("split") / "model"
    fuse(source, out, precision="fp32", user_inputs=["user_*"], samples=13)
    return out


def build(path: Path, *, mean: bool = False) -> Path:
    """user_id int64 [batch], user_words string [batch, 3], item string [batch], price [batch] -> score [batch, 1].

    With `mean` a score depends on the other rows of a request.
    """
    import tensorflow as tf

    random = np.random.default_rng(4)
    module = tf.Module()
    shapes = ((100, DIM), (BUCKETS, DIM), (BUCKETS, DIM), (3 * DIM + 1, 16), (16, 1), (BUCKETS, 1))
    module.weights = [tf.Variable(random.normal(size=shape).astype(np.float32)) for shape in shapes]

    def serve(user_id: Any, user_words: Any, item: Any, price: Any) -> dict[str, Any]:
        users, words, items, hidden, last, wide = module.weights
        bags = tf.reduce_mean(tf.gather(words, tf.strings.to_hash_bucket_fast(user_words, BUCKETS)), 1)
        if mean:
            bags += tf.reduce_mean(bags, 0)
        hashed = tf.strings.to_hash_bucket_fast(item, BUCKETS)
        x = tf.concat([tf.gather(items, hashed), bags, price[:, None], tf.gather(users, user_id)], 1)
        deep = tf.matmul(tf.nn.relu(tf.matmul(x, hidden)), last)
        return {"score": tf.sigmoid(deep + tf.gather(wide, hashed)), "user": bags}

    specs = {
        "user_id": (tf.int64, []),
        "user_words": (tf.string, [3]),
        "item": (tf.string, []),
        "price": (tf.float32, []),
    }
    signature = [tf.TensorSpec([None, *shape], dtype, name=name) for name, (dtype, shape) in specs.items()]
    module.serve = tf.function(serve, input_signature=signature)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


def request(items: int, users: int) -> Feeds:
    """Make a request of so many rows of users and of items."""
    random = np.random.default_rng(items)
    words = np.array([b"a", b"b", b"", b"a word that is longer than most"], object)
    return {
        "user_id": random.integers(0, 100, users),
        "user_words": random.choice(words, (users, 3)),
        "item": random.choice(words, items),
        "price": random.normal(size=items).astype(np.float32),
    }


def repeated(feeds: Feeds, items: int) -> Feeds:
    """Give each item the first user's row."""
    return feeds | {key: np.repeat(feeds[key][:1], items, 0) for key in USERS}


def outcome(report: FuseReport) -> FusedPass:
    """Return what the pass did."""
    (found,) = [pass_ for pass_ in report.fused if pass_.name == SplitUserItems.name]
    return found


def test_the_report_and_the_manifest_name_the_inputs(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = fuse(source, out, precision="fp32", user_inputs=["user_*"], samples=8)
    assert report.user_inputs == USERS
    assert json.loads((out / MANIFEST).read_text())["user_inputs"] == USERS
    assert outcome(report).applied == 1
    ops = [node.op for node in read_model(out).graph if node.op.startswith("Rec")]
    assert {op: ops.count(op) for op in ("RecCollapseRows", "RecEmbeddingGroup", "RecDenseTower", "RecExpandRows")} == {
        "RecCollapseRows": 1,
        "RecEmbeddingGroup": 2,
        "RecDenseTower": 1,
        "RecExpandRows": 1,
    }
    again = fuse(out, tmp_path / "again", user_inputs=["user_*"], samples=3)
    assert (again.user_inputs, outcome(again).applied, outcome(again).refused) == (USERS, 0, [])


def test_requests_with_one_and_with_equal_user_rows_are_verified(source: Path, split: Path, tmp_path: Path) -> None:
    plain = verify(source, source, samples=8)
    found = verify(source, split, samples=8)
    assert found.passed
    assert found.signatures[0].generated > plain.signatures[0].generated == 8
    one = request(5, 1)
    np.savez(
        tmp_path / "recorded.npz",
        **{key: value.astype(str) if value.dtype == object else value for key, value in one.items()},
    )
    found = verify(source, split, requests=[tmp_path / "recorded.npz"], samples=0)
    assert found.passed
    assert (found.signatures[0].recorded, found.signatures[0].rows) == (1, 5)


def test_a_split_that_forgets_rows_is_found(source: Path, split: Path, tmp_path: Path) -> None:
    """Take the scores of users that differ for those of the first."""
    from graph_tools.writer import write_saved_model

    model = read_model(split)
    for node in model.graph.of("RecExpandRows"):
        (user, index), *_ = model.graph.uses(node.output())
        model.graph.set_input(user, index, node.inputs[0])
    write_saved_model(model, tmp_path / "wrong")
    found = verify(source, tmp_path / "wrong", samples=8)
    assert not found.passed
    assert any("'user'" in why for why in found.reasons)


@pytest.mark.parametrize("items", [1, 2, 33])
def test_scores_are_those_of_the_source(source: Path, split: Path, items: int) -> None:
    load_library()
    one, many = request(items, 1), request(items, items)
    for asked, full in ((one, repeated(one, items)), (repeated(one, items),) * 2, (many, many)):
        wanted, found = answers(source, full), answers(split, asked)
        for key, value in wanted.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5)


def test_a_host_takes_one_row_of_the_user(source: Path, split: Path) -> None:
    one = request(6, 1)
    with processor.Model(split, config={"session_num": 1}) as model:
        for asked in (one, repeated(one, 6)):
            found, wanted = model.run(asked), answers(source, repeated(one, 6))
            np.testing.assert_allclose(found["score"], wanted["score"], rtol=1e-5, atol=1e-5)
        for users, items in ((2, 6), (6, 1), (0, 1)):
            for asked in (request(items, users), repeated(request(items, 1), users) | {"item": [b"a"] * items}):
                with pytest.raises(
                    processor.errors.InvalidArgumentError, match=f": {users} rows, expected 1 or {items}"
                ):
                    model.run(asked)


def test_a_model_that_mixes_rows_is_left_alone(tmp_path: Path) -> None:
    report = fuse(build(tmp_path / "mean", mean=True), tmp_path / "out", user_inputs=["user_*"], samples=5)
    assert (outcome(report).applied, report.user_inputs) == (0, [])
    assert [why.split("(")[1] for _, why in outcome(report).refused] == [
        "Mean) may mix rows, expected an op on each row alone"
    ]
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["user_inputs"] == []


def test_a_pattern_must_match(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--user-inputs: no input 'usr_\*', expected some of: item, price, user_id, user_w"
    ):
        fuse(source, tmp_path / "out", user_inputs=["usr_*"])


def test_models_of_deepctr(deepctr_model: Path, tmp_path: Path) -> None:
    """Interactions take both sides; what they are fused to takes the user's rows repeated."""
    user = ["C0", "C1", "city", "hist"]
    report = fuse(deepctr_model, tmp_path / "out", precision="fp32", user_inputs=user, samples=8)
    assert outcome(report).refused == []
    assert sorted(report.user_inputs) == sorted(user)
    assert report.verification is not None
    assert report.verification.passed
    assert not any("MatMul" in node.op for node in read_model(tmp_path / "out").graph)

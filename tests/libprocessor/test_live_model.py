# SPDX-License-Identifier: Apache-2.0
"""A live model in stock TensorFlow: every answer has the rows and the weights of exactly one epoch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import processor
from graph_tools.store.quantize import decode, encode
from helpers.oracles.embedding_groups import table_of
from helpers.oracles.live_graphs import (
    DIM,
    KEYS,
    LiveGraph,
    LiveTable,
    Trainer,
    add_group,
    add_op,
    changes,
    lookup_plan,
    rows_at,
    tower_graph,
)


def assert_epoch(graph: LiveGraph, keys: Any, epoch: int) -> None:
    rows, scores, bias = graph(keys)
    np.testing.assert_array_equal(rows, rows_at(epoch, len(keys)))
    np.testing.assert_array_equal(scores, np.full((len(keys), 1), 1001 * epoch))
    np.testing.assert_array_equal(bias, [epoch])


@pytest.mark.parametrize("rows", [1, 300])
def test_answers_have_the_rows_and_weights_of_the_epoch(tmp_path: Path, rows: int) -> None:
    graph = tower_graph(tmp_path)
    trainer = Trainer(tmp_path / "timeline")
    keys = KEYS[:rows]
    assert_epoch(graph, keys, 0)
    for epoch in (1, 2, 3):
        segment = trainer.publish(changes("user/embedding", KEYS, rows_at(epoch, len(KEYS))), dense__bias=[epoch])
        assert graph.apply(segment) == epoch
        assert_epoch(graph, keys, epoch)
    graph.initialize_again()
    assert_epoch(graph, keys, 3)
    graph.close()


def test_an_epoch_without_variables_keeps_the_weights(tmp_path: Path) -> None:
    graph = tower_graph(tmp_path)
    trainer = Trainer(tmp_path / "timeline")
    first = trainer.publish(changes("unserved/embedding", [1], rows_at(1, 1)), dense__bias=[1], unserved__kernel=[5])
    second = trainer.publish(changes("user/embedding", [1, 4], rows_at(7, 2), deleted=[2]))
    assert graph.apply(first, second) == 2
    rows, scores, _ = graph([0, 1, 2, 3, 4])
    np.testing.assert_array_equal(rows[:, 0], [0, 7, 0, 0, 7])
    np.testing.assert_array_equal(scores[:, 0], [1000, 1007, 1000, 1000, 1007])
    graph.close()


def test_answers_have_one_epoch_while_segments_are_applied(tmp_path: Path) -> None:
    graph = tower_graph(tmp_path)
    trainer = Trainer(tmp_path / "timeline")
    wrong: list[Any] = []
    epochs: set[float] = set()
    ended = threading.Event()

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        while not ended.is_set():
            rows, scores, bias = graph(random.choice(KEYS, random.choice([1, 3, 200])))
            epoch = float(bias[0])
            epochs.add(epoch)
            if not (rows == epoch).all() or not (scores == 1001 * epoch).all():
                wrong.append((rows, scores, bias))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 151):
        graph.apply(trainer.publish(changes("user/embedding", KEYS, rows_at(epoch, len(KEYS))), dense__bias=[epoch]))
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(epochs) > 10
    graph.close()


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "fp16", "int8", "int4"])
@pytest.mark.parametrize("dim", [2, 5, 16])
def test_rows_are_encoded_as_graph_tools_does(tmp_path: Path, row_type: str, dim: int) -> None:
    random = np.random.default_rng(dim)
    rows = random.standard_normal((700, dim)).astype(np.float32) * 10 ** random.uniform(-9, 3, (700, 1))
    rows = rows.astype(np.float32)
    rows[0], rows[1], rows[2, :-1] = 0, -3, 1e-8
    file = table_of(tmp_path, np.zeros((700, dim), np.float32), row_type=row_type)
    build = lambda definition: [f"{add_group(definition, lookup_plan(dim), [np.int64], 1)}:0"]  # noqa: E731
    graph = LiveGraph(tmp_path / "assets", [LiveTable(file, "t")], build)
    graph.apply(Trainer(tmp_path / "timeline").publish(changes("t", np.arange(700), rows)))
    (found,) = graph(np.arange(700))
    expected = decode(encode(rows, row_type), row_type, dim)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    graph.close()


def test_plans_read_empty_rows_and_numbers_of_the_epoch(tmp_path: Path) -> None:
    plan = lookup_plan(DIM, combiner="sum", empty=2)
    plan["keys"] = [{"feature": 0, "ignore": -1}]
    plan["outputs"].append({"width": 2, "initial": [1, 2]})
    plan["columns"].append(
        {"kind": "linear", "feature": 1, "output": 1, "offset": 0, "accumulate": True, "weights": [[1, 1]]}
    )
    formulas = ["", "start", "", "matrix"]

    def build(definition: Any) -> list[str]:
        add_group(definition, plan, [np.int64, np.float32], 1, formulas=formulas)
        return ["group:0", "group:1"]

    file = table_of(tmp_path, rows_at(0, len(KEYS)), KEYS)
    graph = LiveGraph(
        tmp_path / "assets",
        [LiveTable(file, "t")],
        build,
        variables={"wide": np.ones((1, 2)), "bias": np.array([1, 2])},
        formulas={"start": (["bias"], lambda b: b + 0), "matrix": (["wide"], lambda w: w * 1)},
        features=[np.int64, np.float32],
    )
    trainer = Trainer(tmp_path / "timeline")
    features = np.array([[-1], [4]]), np.array([[10], [20]], np.float32)
    np.testing.assert_array_equal(graph(*features)[1], [[11, 12], [21, 22]])
    graph.apply(trainer.publish(changes("t", [2], rows_at(5, 1)), wide=[[2, 3]], bias=[100, 200]))
    rows, wide = graph(*features)
    np.testing.assert_array_equal(rows[:, 0], [5, 0])
    np.testing.assert_array_equal(wide, [[120, 230], [140, 260]])
    graph.close()


def test_strings_and_rows_of_a_variable_change(tmp_path: Path) -> None:
    texts = [b"ada", b"bob", b"eve"]
    files = [table_of(tmp_path, rows_at(0, 3), texts), table_of(tmp_path, rows_at(1, 3), texts)]
    plan = lookup_plan(DIM)
    plan["outputs"][0]["width"] = 2 * DIM
    plan["columns"].append({**plan["columns"][0], "table": 1, "offset": DIM})
    build = lambda definition: [f"{add_group(definition, plan, [object], 2)}:0"]  # noqa: E731
    tables = [LiveTable(files[0], "a", "string"), LiveTable(files[1], "b", "row_number", {"first_row": 2})]
    graph = LiveGraph(tmp_path / "assets", tables, build, features=[object])
    trainer = Trainer(tmp_path / "timeline")
    segment = trainer.publish(
        changes("a", [b"bob", b"zoe"], rows_at(5, 2), deleted=[b"eve"], kind="string"),
        changes("b", [1, 3, 9], rows_at(6, 3), kind="row_number"),
    )
    graph.apply(segment)
    found = graph(np.array([b"ada", b"bob", b"eve", b"zoe"], object))[0]
    np.testing.assert_array_equal(found[:, 0], [0, 5, 0, 5])
    np.testing.assert_array_equal(found[:, DIM], [1, 6, 1, 0])
    graph.close()


def refusals() -> list[tuple[str, Any]]:
    nan = np.full((1, DIM), np.nan)
    return [
        ("not in the model", lambda t: t.publish(changes("other", [1], rows_at(1, 1)))),
        ("expected rows of 4 by integers", lambda t: t.publish(changes("user/embedding", [1], np.ones((1, 5))))),
        ("by row numbers", lambda t: t.publish(changes("user/embedding", [1], rows_at(1, 1), kind="row_number"))),
        ("key 1: element 0 is nan", lambda t: t.publish(changes("user/embedding", [1], nan))),
        ("variable 'nobody'", lambda t: t.publish(nobody=[1])),
        (r"shape \[2\], expected \[1\]", lambda t: t.publish(dense__bias=[1, 2])),
        ("element 0 is inf", lambda t: t.publish(dense__bias=[np.inf])),
        ("expected epoch 1; out of order", lambda t: (t.publish(), t.publish())[1]),
    ]


@pytest.mark.parametrize(("text", "publish"), refusals())
def test_segments_that_do_not_fit_are_refused_by_name(tmp_path: Path, text: str, publish: Any) -> None:
    graph = tower_graph(tmp_path)
    segment = publish(Trainer(tmp_path / "timeline"))
    with pytest.raises(tf.errors.OpError, match=text) as caught:
        graph.apply(segment)
    assert segment.name in str(caught.value)
    assert_epoch(graph, KEYS[:5], 0)
    good = Trainer(tmp_path / "good").publish(changes("user/embedding", KEYS, rows_at(1, len(KEYS))), dense__bias=[1])
    assert graph.apply(good) == 1
    assert_epoch(graph, KEYS[:5], 1)
    graph.close()


def test_other_lineages_are_refused(tmp_path: Path) -> None:
    graph = tower_graph(tmp_path)
    with pytest.raises(tf.errors.FailedPreconditionError, match="lineage 0000"):
        graph.apply(Trainer(tmp_path / "timeline", bytes(16)).publish(dense__bias=[1]))
    graph.close()


def test_libprocessor_answers_with_one_epoch(tmp_path: Path) -> None:
    graph = tower_graph(tmp_path)
    folder = graph.save(tmp_path / "model")
    graph.close()
    trainer = Trainer(tmp_path / "timeline")
    wrong: list[Any] = []
    epochs: set[float] = set()
    ended = threading.Event()
    with processor.Model(str(folder), {"session_num": 2}) as model:

        def ask(seed: int) -> None:
            random = np.random.default_rng(seed)
            while not ended.is_set():
                found = model.run({"feature0": random.choice(KEYS, random.choice([1, 3, 200]))})
                epoch = float(found["y2"][0])
                epochs.add(epoch)
                if not (found["y0"] == epoch).all() or not (found["y1"] == 1001 * epoch).all():
                    wrong.append(found)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for epoch in range(1, 101):
            table = changes("user/embedding", KEYS, rows_at(epoch, len(KEYS)))
            segment = trainer.publish(table, dense__bias=[epoch])
            found = model.run({"segments": np.array([str(segment)], object)}, signature="apply")
            assert found["epoch"] == epoch
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(epochs) > 10


def test_graphs_with_two_views_are_refused(tmp_path: Path) -> None:
    def build(definition: Any) -> list[str]:
        add_op(definition, "RecPinView", "other", ["live"])
        return [f"{add_group(definition, lookup_plan(DIM), [np.int64], 1)}:0"]

    file = table_of(tmp_path, rows_at(0, len(KEYS)), KEYS)
    graph = LiveGraph(tmp_path / "assets", [LiveTable(file, "t")], build)
    with pytest.raises(processor.ProcessorError, match="2 nodes RecPinView, expected one"):
        processor.Model(str(graph.save(tmp_path / "model")), {})
    graph.close()

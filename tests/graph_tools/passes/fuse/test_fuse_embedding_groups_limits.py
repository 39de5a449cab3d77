# SPDX-License-Identifier: Apache-2.0
"""Which lookups may be in one group, and which in none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Output
from graph_tools.plans.embedding_parts import Lookup
from helpers.graph_tools.group_checks import fused, strings
from helpers.models.idiom_models import KEY, export_function, export_graph, table


def specs(*names: str) -> list[Any]:
    import tensorflow as tf

    return [tf.TensorSpec([None], tf.int64, name=name) for name in names]


def variables(count: int = 3, dim: int = 4) -> list[Any]:
    import tensorflow as tf

    return [tf.Variable(table(10, dim, i)) for i in range(count)]


def test_batches_that_may_differ_get_their_own_groups(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables()

    def serve(user: Any, item: Any, shop: Any) -> dict[str, Any]:
        users, items = tf.gather(held[0], user), tf.concat([tf.gather(held[1], item), tf.gather(held[2], shop)], 1)
        return {"score": tf.reduce_sum(users * items[:, :4], 1), "users": users, "items": items}

    made = fused(export_function(tmp_path / "in", serve, specs("user", "item", "shop"), held=held))
    assert sorted(len(plan.keys) for _, plan in made.groups) == [1, 2]
    made.check({"user": np.array([3]), "item": np.array([0, 9]), "shop": np.array([1, 1])})


def test_sum_that_broadcasts_is_not_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(2)

    def serve(user: Any, item: Any) -> dict[str, Any]:
        return {"sum": tf.gather(held[0], user) + tf.gather(held[1], item)}

    made = fused(export_function(tmp_path / "in", serve, specs("user", "item"), held=held))
    assert made.ops() == {"AddV2"}
    assert len(made.groups) == 2


def test_lookup_that_needs_another_lookup_gets_its_own_group(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(2)

    def serve(ids: Any) -> dict[str, Any]:
        first = tf.gather(held[0], ids)
        second = tf.gather(held[1], tf.argmax(first, 1))
        return {"first": first, "both": tf.concat([tf.gather(held[0], ids), second], 1)}

    made = fused(export_function(tmp_path / "in", serve, specs("ids"), held=held))
    (first, early), (second, late) = made.groups
    if any(source.node == second.name for source in first.inputs):
        first, second, early, late = second, first, late, early
    assert [output.width for output in early.outputs] == [4]
    assert [one.width for one in late.outputs] == [8]
    assert first.name in made.model.graph.ancestors([second.name])


def test_numbers_that_depend_on_a_lookup_are_joined_after_the_group(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(3)

    def serve(a: Any, b: Any, c: Any) -> dict[str, Any]:
        rows = [tf.gather(w, ids) for w, ids in zip(held, (a, b, c), strict=True)]
        return {"columns": tf.concat([tf.nn.relu(rows[2]), rows[0], rows[1]], 1)}

    made = fused(export_function(tmp_path / "in", serve, specs("a", "b", "c"), held=held))
    (joined,) = made.model.graph.of("ConcatV2")
    assert len(joined.inputs) == 3  # the axis is one of them
    assert sorted(output.width for output in made.plan.outputs) == [4, 8]


def test_signatures_get_their_own_groups(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.held = variables(2)
    users = tf.function(lambda user: {"rows": tf.gather(module.held[0], user)}, input_signature=specs("user"))
    items = tf.function(lambda item: {"rows": tf.gather(module.held[1], item)}, input_signature=specs("item"))
    tf.saved_model.save(module, str(tmp_path / "in"), signatures={KEY: users, "items": items})
    made = fused(tmp_path / "in")
    assert [len(plan.keys) for _, plan in made.groups] == [1, 1]
    made.check({"user": np.array([0, 9])})
    made.check({"item": np.array([5])}, signature="items")


def test_variable_that_is_written_while_served_is_not_a_table(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(2)

    def serve(ids: Any) -> dict[str, Any]:
        held[0].assign_add(tf.ones_like(held[0]))
        return {"rows": tf.gather(held[0], ids), "others": tf.gather(held[1], ids)}

    made = fused(export_function(tmp_path / "in", serve, specs("ids"), held=held))
    assert [len(plan.keys) for _, plan in made.groups] == [1]
    assert ["is written while it" in why or "runs after" in why for _, why in made.result.refused] == [True]


def test_branches_of_tensorflow_1_are_not_fused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        ids, flag = v1.placeholder("int64", [None], name="ids"), v1.placeholder("bool", [], name="flag")
        weights = v1.get_variable("weights", initializer=table(10, 4))
        off, on = v1.raw_ops.Switch(data=ids, pred=flag)
        both, _ = v1.raw_ops.Merge(inputs=[v1.gather(weights, off), v1.gather(weights, on) * 2])
        return {"ids": ids, "flag": flag}, {"rows": v1.identity(both, name="rows")}

    made = fused(export_graph(tmp_path / "in", build))
    assert not made.groups
    assert {why for _, why in made.result.refused} == {"it runs in a branch or loop of TensorFlow 1"}


def test_join_of_one_repeated_row_is_not_part_of_the_group(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(1)

    def serve(ids: Any) -> dict[str, Any]:
        row = tf.gather(held[0], ids)[:, None]
        return {"rows": tf.concat([row, row, row], 1)}

    made = fused(export_function(tmp_path / "in", serve, specs("ids"), held=held))
    assert made.ops() == {"ConcatV2"}
    assert [output.width for output in made.plan.outputs] == [4]


def test_sums_of_an_interaction_stay_for_its_pass(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(3)

    def serve(a: Any, b: Any, c: Any) -> dict[str, Any]:
        fields = tf.stack([tf.gather(w, ids) for w, ids in zip(held, (a, b, c), strict=True)], axis=1)
        return {"fm": tf.reduce_sum(fields, 1) ** 2 - tf.reduce_sum(fields**2, 1)}

    made = fused(export_function(tmp_path / "in", serve, specs("a", "b", "c"), held=held))
    assert [output.width for output in made.plan.outputs] == [12]
    assert "Sum" in made.ops()


def test_rows_that_do_not_depend_on_the_request_are_not_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(1)

    def serve(x: Any) -> dict[str, Any]:
        places = tf.range(tf.shape(x)[1])
        return {"y": x + tf.gather(held[0], places)}

    made = fused(
        export_function(tmp_path / "in", serve, [tf.TensorSpec([None, None, 4], tf.float32, name="x")], held=held)
    )
    assert not made.groups
    assert "same in all requests" in made.result.refused[0][1]


@pytest.mark.parametrize("fetched", [False, True])
def test_lookup_that_clients_fetch_is_an_output(fetched: bool, tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(2)

    def serve(a: Any, b: Any) -> dict[str, Any]:
        rows = [tf.gather(held[0], a), tf.gather(held[1], b)]
        return {"both": tf.concat(rows, 1)} | ({"first": rows[0]} if fetched else {})

    made = fused(export_function(tmp_path / "in", serve, specs("a", "b"), held=held))
    assert len(made.plan.outputs) == 1 + fetched
    assert len(made.tables) == 2
    made.check({"a": np.array([0, 9]), "b": np.array([4, 4])})


def test_lookups_of_one_feature_share_its_key(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(2)

    def serve(word: Any) -> dict[str, Any]:
        ids = tf.strings.to_hash_bucket_fast(word, 10)
        return {"rows": tf.concat([tf.gather(held[0], ids), tf.gather(held[1], ids)], 1)}

    made = fused(export_function(tmp_path / "in", serve, [tf.TensorSpec([None], "string", name="word")], held=held))
    assert len(made.plan.keys) == 1
    assert len(made.tables) == 2
    assert all(isinstance(column, Lookup) and column.key == 0 for column in made.plan.columns)
    made.check({"word": strings("a", "b")})


def test_variable_with_another_reader_stays(tmp_path: Path) -> None:
    import tensorflow as tf

    held = variables(1)

    def serve(a: Any) -> dict[str, Any]:
        rows = tf.gather(held[0], a)
        return {"rows": rows, "scores": tf.matmul(rows, held[0], transpose_b=True)}

    made = fused(export_function(tmp_path / "in", serve, specs("a"), held=held))
    assert len(made.model.variables) == 1
    assert all(Output(name).node in made.model.graph for name in made.model.variables)
    made.check({"a": np.array([0, 9])})

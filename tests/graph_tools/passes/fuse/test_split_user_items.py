# SPDX-License-Identifier: Apache-2.0
"""What is the user's alone is computed once, where that is proved to change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.passes.fuse.split_user_items import COLLAPSE, EXPAND
from helpers.graph_tools.pass_checks import floats
from helpers.graph_tools.row_checks import checked, split
from helpers.models.idiom_models import KEY, export_graph

USERS, ITEMS, DIM = 23, 31, 4


def count(model: Model, op: str) -> int:
    """Count the nodes of an op."""
    return len(model.graph.of(op))


def variable(v1: Any, name: str, *shape: int) -> Any:
    """Make a variable with normal elements."""
    random = np.random.default_rng(sum(name.encode()))
    return v1.get_variable(name, initializer=random.normal(size=shape).astype(np.float32))


def dense(v1: Any, x: Any, units: int, name: str) -> Any:
    """Make `x @ W + b`."""
    y = v1.matmul(x, variable(v1, f"{name}/kernel", int(x.shape[-1]), units))
    return v1.nn.bias_add(y, variable(v1, f"{name}/bias", units))


def export(path: Path, score: Callable[[Any, Any, Any], Any]) -> Path:
    """Export `score(v1, user, item)` of rows that are looked up by user and item [batch]."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        user, item = (v1.placeholder(v1.int64, [None], name=name) for name in ("user", "item"))
        rows = [
            v1.nn.embedding_lookup(variable(v1, f"{name}/table", count, DIM), ids)
            for name, count, ids in (("user", USERS, user), ("item", ITEMS, item))
        ]
        y = score(v1, *rows)
        outputs = y if isinstance(y, dict) else {"y": y}
        return {"user": user, "item": item}, {key: v1.identity(output, name=key) for key, output in outputs.items()}

    return export_graph(path / "source", build)


def requests(*sizes: int) -> list[dict[str, np.ndarray]]:
    """Make requests of user and item ids."""
    random = np.random.default_rng(3)
    return [
        {"user": random.integers(0, USERS, size), "item": random.integers(0, ITEMS, size)}
        for size in sizes or (1, 2, 7)
    ]


def test_layer_over_both_sides_becomes_a_product_per_side(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        x = v1.concat([item[:, :1], user, item[:, 1:]], 1)
        return v1.sigmoid(dense(v1, v1.nn.relu(dense(v1, x, 8, "one")), 1, "two"))

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert (result.applied, result.refused) == (1, [])
    assert (count(model, COLLAPSE), count(model, EXPAND), count(model, "MatMul")) == (1, 0, 3)
    kernels = {name: tensor.shape for name, tensor in model.variables.items() if "kernel" in name}
    assert not any(shape == (2 * DIM, 8) for name, shape in kernels.items() if name in model.graph)


def test_tasks_over_the_same_columns_share_the_split(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        fields = v1.stack([user, item, user * 0.5], 1)
        x = v1.concat([v1.reshape(fields, [-1, 3 * DIM]), item], 1)
        return {f"y{i}": dense(v1, x, 3, f"task{i}") for i in range(3)}

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    assert (count(model, "MatMul"), count(model, EXPAND), count(model, "ConcatV2"), count(model, "Pack")) == (
        6,
        0,
        2,
        0,
    )


def test_products_of_more_dimensions_and_transposed_weights_are_split(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        x = v1.concat([v1.reshape(user, [-1, 2, 2]), v1.reshape(item, [-1, 2, 2])], 2)
        y = v1.linalg.matmul(x, variable(v1, "kernel", 3, 4)[None], transpose_b=True)
        flat = v1.concat([user, item], 1)
        return {"y": y, "z": v1.matmul(flat, variable(v1, "turned", 5, 2 * DIM), transpose_b=True)}

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    assert count(model, "MatMul") == 2


def test_terms_of_a_sum_are_added_per_side(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        both = user * item
        one = v1.add_n([user, item, v1.sin(user), v1.tanh(item), both])
        return {"one": one, "two": v1.add_n([user, item]), "only": v1.add_n([v1.cos(user), v1.exp(user)])}

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    assert sorted(len(node.inputs) for node in model.graph.of("AddN")) == [2, 2, 3]
    assert [node.inputs[0].node for node in model.graph.of(EXPAND)] == ["only"]


def test_two_towers_that_meet_in_a_product_are_split(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        a, b = (v1.math.l2_normalize(dense(v1, one, 4, name), 1) for one, name in ((user, "user"), (item, "item")))
        return v1.reduce_sum(a * b, 1, keepdims=True) - v1.reduce_max(a, 1, keepdims=True)

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    assert (count(model, COLLAPSE), count(model, EXPAND)) == (1, 0)


def test_rows_that_do_not_broadcast_are_repeated(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        fields = v1.stack([user, v1.sin(user), item], 1)
        joined = v1.concat([user, v1.cos(user), item, user], 1)
        total = v1.reduce_sum(fields, 1)
        return {"fields": v1.square(total) - v1.reduce_sum(v1.square(fields), 1), "joined": joined}

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    # Of `joined` two: what stands side by side is repeated together.
    assert sorted(source.node.split("/")[0] for node in model.graph.of(EXPAND) for source in node.inputs[:1]) == [
        "Sin",
        "concat",
        "embedding_lookup",
    ]


def test_columns_of_a_split_product_keep_their_other_users(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        x = v1.concat([user, item], 1)
        cross = x * v1.matmul(x, variable(v1, "cross", 2 * DIM, 1)) + x
        return v1.concat([cross, dense(v1, x, 3, "deep")], 1)

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    assert (count(model, "MatMul"), count(model, EXPAND)) == (4, 1)


def test_number_of_rows_is_that_of_each_side(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        rows = v1.shape(user)[0]
        ones = v1.fill([rows, 2], 1.5)
        y = v1.concat([v1.reshape(user + item, [rows, 2, 2]), v1.reshape(item, [v1.shape(item)[0], 2, 2])], 2)
        alone = v1.concat([v1.zeros_like(user), ones, v1.reshape(user, [rows, DIM])], 1)
        return {"y": y, "alone": alone, "rows": rows, "item_rows": v1.shape(item)}

    _, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1


def test_items_attend_to_one_history_of_the_user(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        history, item = (
            v1.placeholder(v1.int64, [None, None], name="history"),
            v1.placeholder(v1.int64, [None], name="item"),
        )
        table = variable(v1, "table", ITEMS, DIM)
        keys, query = v1.nn.embedding_lookup(table, history), v1.nn.embedding_lookup(table, item)[:, None]
        mask = v1.cast(v1.not_equal(history, 0), v1.float32)[:, None]
        queries = v1.tile(query, [1, v1.shape(history)[1], 1])
        unit = v1.concat([queries, keys, queries - keys, queries * keys], 2)
        kernel = variable(v1, "unit", 4 * DIM, 1)
        scores = v1.reshape(v1.matmul(v1.reshape(unit, [-1, 4 * DIM]), kernel), [-1, 1, v1.shape(history)[1]])
        scores += v1.linalg.matmul(query, keys, transpose_b=True)
        weights = v1.nn.softmax(scores * mask - 1e4 * (1 - mask))
        interest = v1.linalg.matmul(weights, keys)
        y = v1.concat([v1.reshape(interest, [-1, DIM]), query[:, 0], v1.reduce_sum(keys, 1)], 1)
        return {"history": history, "item": item}, {"y": v1.identity(dense(v1, y, 1, "last"), name="y")}

    random = np.random.default_rng(1)
    feeds = [
        {"history": random.integers(0, ITEMS, (rows, 3)), "item": random.integers(0, ITEMS, rows)} for rows in (1, 2, 5)
    ]
    model, result = checked(export_graph(tmp_path / "source", build), feeds, "history")
    assert (result.applied, result.refused) == (1, [])
    # Of the user's history only the part beside an item's is repeated.
    assert count(model, EXPAND) == 1


CROSSING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Mean": lambda v1, user, item: item + v1.reduce_mean(user, 0),
    "Softmax": lambda v1, user, item: item * v1.nn.softmax(v1.reduce_sum(user, 1))[:, None],
    "Transpose": lambda v1, user, item: item + v1.matmul(v1.transpose(user), user)[:1],
    "Sub": lambda v1, user, item: item + user - v1.constant(np.ones((3, 1), np.float32)),
    "ReverseV2": lambda v1, user, item: item + v1.reverse(user, [0]),
    "Squeeze": lambda v1, user, item: item * v1.squeeze(v1.reduce_sum(user, 1, keepdims=True)),
    "StridedSlice": lambda v1, user, item: item + user[:1],
    "Cumsum": lambda v1, user, item: v1.cumsum(item * user, 0),
    "Reshape": lambda v1, user, item: item + v1.reshape(v1.sin(v1.reshape(user, [2, -1])), [-1, DIM]),
    "AddV2": lambda v1, user, item: item[:, :1] + v1.reduce_sum(user, 1),
    "RealDiv": lambda v1, user, item: item + user / v1.cast(v1.shape(user)[0], v1.float32),
    "MatMul": lambda v1, user, item: v1.matmul(item, user, transpose_b=True),
    "Unique": lambda v1, user, item: item + v1.cast(v1.unique(v1.reshape(user, [-1]))[1][0], v1.float32),
}


@pytest.mark.parametrize("op", CROSSING)
def test_op_that_may_mix_rows_is_refused_with_its_name(tmp_path: Path, op: str) -> None:
    _, result = split(export(tmp_path, CROSSING[op]), "user")
    assert result.applied == 0
    assert len(result.refused) == 1
    site, why = result.refused[0]
    assert why.startswith(f"'{site}' ({op if op != 'RealDiv' else 'Cast'}) ")


@pytest.mark.parametrize("op", ["Mul", "Maximum", "SelectV2"])
def test_numbers_computed_from_the_whole_batch_are_refused(tmp_path: Path, op: str) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        mean = v1.reduce_mean(user)
        made = {"Mul": mean * 2.0, "Maximum": v1.maximum(mean, 0.5), "SelectV2": v1.where_v2(mean > 0, mean, 1.0)}
        return item + made[op]

    _, result = split(export(tmp_path, score), "user")
    assert result.refused[0][1].endswith("(Mean) may mix rows, expected an op on each row alone")


def test_numbers_that_do_not_depend_on_rows_are_accepted(tmp_path: Path) -> None:
    def score(v1: Any, words: Any, item: Any) -> Any:
        rows = v1.gather(variable(v1, "table", 11, DIM), v1.strings.to_hash_bucket_fast(words, 11))
        return item * v1.sin(v1.reduce_sum(rows, 1) / v1.sqrt(1.0 + v1.cast(v1.shape(words)[1], v1.float32)))

    _, result = checked(bags(score, tmp_path), bag_requests(), "words")
    assert (result.applied, result.refused) == (1, [])


def test_ops_that_mix_only_item_rows_are_accepted(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        centered = item - v1.reduce_mean(item, 0, keepdims=True)
        return v1.sin(user) * centered + v1.cumsum(item, 0)

    _, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (("user", "item"), "no input meets the user's with a row for each item"),
        (("*",), "no input meets the user's with a row for each item"),
        (("none",), None),
        ((), None),
    ],
)
def test_model_without_user_or_items_is_refused(tmp_path: Path, user: tuple[str, ...], why: str | None) -> None:
    _, result = split(export(tmp_path, lambda v1, user, item: v1.sin(user) + item), *user)
    assert result.applied == 0
    assert result.refused == ([] if why is None else [(KEY, why)])


def test_model_without_user_computations_is_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x, z = (v1.placeholder(v1.float32, [None, 3], name=name) for name in "xz")
        return {"x": x, "z": z}, {"y": v1.identity(x[:, None] + z[:, None], name="y")}

    _, result = split(export_graph(tmp_path / "source", build), "x")
    assert result.refused == [(KEY, "nothing is computed of the user's inputs alone")]


def test_columns_of_one_input_are_split(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x, z = (v1.placeholder(v1.float32, [None, 3], name=name) for name in "xz")
        return {"x": x, "z": z}, {"y": v1.identity(dense(v1, v1.concat([x, z], 1), 2, "one"), name="y")}

    feeds = [{"x": floats(rows, 3), "z": floats(rows, 3, seed=9)} for rows in (1, 4)]
    model, result = checked(export_graph(tmp_path / "source", build), feeds, "x")
    assert result.applied == 1
    assert count(model, EXPAND) == 0


def test_user_input_without_rows_is_refused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x, z = (v1.placeholder(v1.float32, [None, 3], name=name) for name in "xz")
        scale = v1.placeholder(v1.float32, [], name="scale")
        return {"x": x, "z": z, "scale": scale}, {"y": v1.identity(v1.sin(x) * scale + z, name="y")}

    source = export_graph(tmp_path / "source", build)
    _, result = split(source, "scale")
    assert result.refused == [("scale", "it has no first dimension of any size, expected one for the rows")]
    feeds = [{"x": floats(rows, 3), "z": floats(rows, 3, seed=9), "scale": np.float32(2)} for rows in (2, 4)]
    checked(source, feeds, "x")


def test_expected_rows_come_from_an_op_that_needs_equal_rows(tmp_path: Path) -> None:
    """An input that meets the user's by a product may have one row, and parts of a sparse tensor have others."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        context, user, item = (v1.placeholder(v1.float32, [None, 3], name=name) for name in ("a", "user", "z"))
        bags = v1.sparse_placeholder(v1.int64, [None, None], name="bags")
        pooled = v1.nn.safe_embedding_lookup_sparse(variable(v1, "table", ITEMS, 3), bags, combiner="sum")
        y = dense(v1, v1.concat([v1.sin(user), pooled, item], 1), 2, "one") + v1.reduce_sum(context * user, 1)[:, None]
        parts = {"0": bags.indices, "1": bags.values, "2": bags.dense_shape}
        return {**parts, "a": context, "user": user, "z": item}, {"y": v1.identity(y, name="y")}

    source = export_graph(tmp_path / "source", build)
    model, result = split(source, "user")
    assert (result.applied, result.refused) == (1, [])
    assert {node.inputs[-1].node for node in model.graph.of(COLLAPSE, EXPAND)} == {"z"}
    _, result = split(source, "1")
    assert result.applied == 0
    assert all("is not known to act on each row alone" in why for _, why in result.refused)


def test_signatures_share_all_user_inputs_or_none(tmp_path: Path) -> None:
    model, result = split(two_signatures(tmp_path / "same", ("x",), ("x",)), "x", "w")
    assert [[source.node for source in node.inputs] for node in model.graph.of(COLLAPSE)] == [["x", "z"]]
    model, result = split(two_signatures(tmp_path / "others", ("x",), ("w",)), "x", "w")
    assert result.applied == 2
    assert sorted([one.node for one in node.inputs] for node in model.graph.of(COLLAPSE)) == [["w", "z"], ["x", "z"]]
    _, result = split(two_signatures(tmp_path / "some", ("x",), ("w", "x")), "x", "w")
    why = "another signature has some of its user inputs, expected all or none"
    assert sorted(result.refused) == [("first", why), ("second", why)]


def two_signatures(path: Path, one: tuple[str, ...], other: tuple[str, ...]) -> Path:
    """Export two scores of `z` and other inputs in one graph."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        inputs = {name: v1.placeholder(v1.float32, [None, 3], name=name) for name in sorted({*one, *other, "z"})}
        builder = v1.saved_model.Builder(str(path))
        signatures = {}
        for key, names in (("first", one), ("second", other)):
            y = v1.identity(sum(v1.sin(inputs[name]) for name in names) * inputs["z"], name=key)
            taken = {each: inputs[each] for each in (*names, "z")}
            signatures[key] = v1.saved_model.signature_def_utils.predict_signature_def(taken, {"y": y})
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return path


def test_einsum_and_normalization_keep_rows_apart(tmp_path: Path) -> None:
    def score(v1: Any, user: Any, item: Any) -> Any:
        kernel = variable(v1, "kernel", DIM, 3, 2)
        a, b = (v1.einsum("bi,ijk->bjk", one, kernel) for one in (user, item))
        return v1.nn.softmax(v1.einsum("bjk,bjk->bj", a, b)) + v1.einsum("bj->b", item)[:, None]

    model, result = checked(export(tmp_path, score), requests(), "user")
    assert result.applied == 1
    _, result = split(export(tmp_path / "more", lambda v1, u, i: v1.einsum("bi,ci->bc", u, i)), "user")
    assert [why.split("(")[1] for _, why in result.refused] == [
        "Einsum) may mix rows, expected an op on each row alone"
    ]
    assert count(model, COLLAPSE) == 1


def bags(score: Callable[[Any, Any, Any], Any], path: Path) -> Path:
    """Export `score(v1, words, item)` of words string [batch, n], padded with '', and item [batch, DIM]."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        words = v1.placeholder(v1.string, [None, None], name="words")
        item = v1.placeholder(v1.float32, [None, DIM], name="item")
        return {"words": words, "item": item}, {"y": v1.identity(score(v1, words, item), name="y")}

    return export_graph(path / "source", build)


def bag_requests() -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(6)
    words = np.array([b"", b"a", b"b", b"c"], object)
    return [{"words": random.choice(words, (rows, 5)), "item": floats(rows, DIM)} for rows in (1, 2, 6)]


@pytest.mark.parametrize("combiner", ["mean", "sum", "sqrtn"])
def test_bags_of_the_user_are_pooled_once(tmp_path: Path, combiner: str) -> None:
    def score(v1: Any, words: Any, item: Any) -> Any:
        parts = [item]
        for which in (words, v1.where(v1.equal(words, b"a"), v1.fill(v1.shape(words), b""), words)):
            sparse = v1.sparse.from_dense(which)
            hashed = v1.strings.to_hash_bucket_fast(sparse.values, USERS)
            ids = v1.SparseTensor(sparse.indices, hashed, sparse.dense_shape)
            table = variable(v1, f"table{len(parts)}", USERS, DIM)
            parts.append(v1.nn.safe_embedding_lookup_sparse(table, ids, combiner=combiner))
        return dense(v1, v1.concat(parts, 1), 3, "one")

    model, result = checked(bags(score, tmp_path), bag_requests(), "words")
    assert result.applied == 1
    assert (count(model, COLLAPSE), count(model, EXPAND), count(model, "MatMul")) == (1, 0, 2)


def test_sparse_entries_are_followed_to_their_segments(tmp_path: Path) -> None:
    def score(v1: Any, words: Any, item: Any) -> Any:
        sparse = v1.sparse.from_dense(words)
        filled, _ = v1.sparse.fill_empty_rows(sparse, b"none")
        rows, column = (v1.cast(filled.indices[:, i], v1.int32) for i in (0, 1))
        found = v1.gather(variable(v1, "table", USERS, DIM), v1.strings.to_hash_bucket_fast(filled.values, USERS))
        pooled = v1.segment_mean(found * v1.cast(column + 1, v1.float32)[:, None] * 0.5, rows)
        again = v1.math.unsorted_segment_sum(v1.sin(found), rows, v1.shape(item)[0])
        return pooled + item + again

    model, result = checked(bags(score, tmp_path), bag_requests(), "words")
    assert result.applied == 1
    # The last sum asks how many items there are: its entries are those of all rows.
    assert {model.graph.input(node, 0).op for node in model.graph.of(EXPAND)} == {COLLAPSE, "NotEqual"}


MIXED_ENTRIES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "numbers of rows are values": lambda v1, columns, numbers, rows: v1.unsorted_segment_sum(
        v1.cast(numbers, v1.float32), numbers, rows
    ),
    "as many as there are": lambda v1, columns, numbers, rows: v1.segment_sum(columns, numbers),
    "some of the entries": lambda v1, columns, numbers, rows: v1.unsorted_segment_sum(columns[1:], numbers[1:], rows),
    "all entries": lambda v1, columns, numbers, rows: v1.reduce_sum(columns, 0, keepdims=True),
    "segments of values": lambda v1, columns, numbers, rows: v1.unsorted_segment_sum(
        columns, v1.cast(columns, v1.int32), rows
    ),
    "another number of rows": lambda v1, columns, numbers, rows: v1.unsorted_segment_sum(columns, numbers, 2 * rows),
}


@pytest.mark.parametrize("what", MIXED_ENTRIES)
def test_segments_with_entries_of_several_rows_are_refused(tmp_path: Path, what: str) -> None:
    def score(v1: Any, words: Any, item: Any) -> Any:
        places = v1.where(v1.not_equal(words, b""))
        numbers, columns = v1.cast(places[:, 0], v1.int32), v1.cast(places[:, 1], v1.float32)
        return item + MIXED_ENTRIES[what](v1, columns, numbers, v1.shape(words)[0])[:, None]

    _, result = split(bags(score, tmp_path), "words")
    assert result.applied == 0
    assert result.refused


def test_wide_and_deep_model_is_split(wdl_model: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    words = np.array([b"", b"7", b"68fd1e64", b"a word"], object)
    feeds = {f"C{i}": random.choice(words, 5) for i in range(1, 27)} | {
        f"I{i}": floats(5, seed=i) for i in range(1, 14)
    }
    model, result = checked(wdl_model, [feeds], "C?", "C1?", "C20", out=tmp_path / "split")
    assert (result.applied, result.refused) == (1, [])
    (rows,) = model.graph.of(COLLAPSE)
    *user, _like = rows.inputs
    assert (len(user), count(model, EXPAND)) == (20, 0)
    kernels = {name: tensor.shape for name, tensor in model.variables.items() if name.startswith("dnn_0/kernel/")}
    assert sorted(kernels.values()) == [(109, 1024), (320, 1024)]

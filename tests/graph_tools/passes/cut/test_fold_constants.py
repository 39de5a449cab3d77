# SPDX-License-Identifier: Apache-2.0
"""Values that are the same in every request are computed before serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.fold_constants import FoldConstants
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from helpers.graph_tools.pass_checks import checked, from_graph, ops_of, x_of


def weights(rows: int, columns: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def test_arithmetic_on_constants_becomes_one(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return x * v1.rsqrt(v1.constant([1.0, 2.0, 3.0]) + 0.001)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert result.applied == 1
    assert ops_of(model) == {"Placeholder", "Const", "Mul", "Identity"}
    assert len(model.graph.of("Const")) == 1


def test_moments_in_variables_become_a_constant(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        variance = v1.get_variable("variance", initializer=np.array([1.0, 2.0, 3.0], np.float32))
        return x * v1.rsqrt(variance + 0.001)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert result.applied == 1
    assert not model.variables
    assert ops_of(model) == {"Placeholder", "Const", "Mul", "Identity"}


def test_larger_results_become_variables(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        kernel = v1.get_variable("kernel", initializer=weights(40, 30))
        return v1.matmul(x, v1.transpose(kernel))

    # TensorFlow itself multiplies by the transposed kernel in another order of additions.
    model, _ = checked(from_graph(tmp_path, build, 30), x_of(30), FoldConstants(), exact=False)
    assert [tensor.shape for tensor in model.variables.values()] == [(30, 40)]
    assert "kernel" not in model.graph
    assert "Transpose" not in ops_of(model)


def test_parts_of_a_large_kernel_are_joined_where_nothing_else_reads_them(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        parts = [v1.get_variable(f"part_{i}", initializer=weights(100, 300, i)) for i in range(2)]
        return v1.matmul(x, v1.concat(parts, 0))

    model, _ = checked(from_graph(tmp_path, build, 200), x_of(200), FoldConstants())
    assert [tensor.shape for tensor in model.variables.values()] == [(200, 300)]


def test_large_weights_that_others_read_are_not_stored_twice(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        kernel = v1.get_variable("kernel", initializer=weights(200, 200))
        return v1.matmul(v1.matmul(x, kernel), v1.transpose(kernel))

    model, result = checked(from_graph(tmp_path, build, 200), x_of(200), FoldConstants(), exact=False)
    assert set(model.variables) == {"kernel"}
    assert "Transpose" in ops_of(model)
    assert result.applied == 0


def test_large_results_are_not_stored(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return x[:, :1] + v1.reduce_sum(v1.fill([1000, 1000], 2.0) * v1.ones([1000, 1000]), axis=0)[:1]

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert "Fill" in ops_of(model)
    assert max(node.attrs["value"].tensor.ByteSize() for node in model.graph.of("Const")) < 1000


def test_random_numbers_stay_random(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        stateless = v1.random.stateless_uniform([3], [1, 2])
        return x + 0.0 * (v1.random_uniform([3]) + v1.random.truncated_normal([3])) + stateless

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert {"RandomUniform", "TruncatedNormal"} <= ops_of(model)
    assert [op for op in ops_of(model) if op.startswith("StatelessRandom")]


def test_variable_that_is_written_is_read_at_every_request(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        counter = v1.get_variable("counter", initializer=np.float32(0))
        with v1.control_dependencies([v1.assign_add(counter, 1.0)]):
            return x + 2.0 * counter.read_value()

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert "counter" in model.variables


def test_shapes_that_are_known_become_constants(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        size = v1.shape(x)
        known = v1.cast(size[1] * size[-1] + v1.rank(x) + v1.size(v1.zeros([2, 5])), v1.float32)
        return x * known + v1.cast(size[0], v1.float32)

    model, result = checked(from_graph(tmp_path, build, 4), x_of(4), FoldConstants())
    assert result.applied
    assert not {"Rank", "Size"} & ops_of(model)
    assert len(model.graph.of("StridedSlice")) == 1


def test_target_of_a_reshape_is_known_but_for_the_batch(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.reshape(x, [v1.shape(x)[0], 12])

    feeds = [*x_of(3, 4), {"x": np.zeros((0, 3, 4), np.float32)}]
    model, _ = checked(from_graph(tmp_path, build, 3, 4), feeds, FoldConstants())
    assert ops_of(model) == {"Placeholder", "Const", "Reshape", "Identity"}


def test_target_with_two_unknown_sizes_is_computed(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.reshape(x, [v1.shape(x)[1], v1.shape(x)[0]])

    model, _ = checked(from_graph(tmp_path, build, None), x_of(4), FoldConstants())
    assert "Pack" in ops_of(model)


def test_strings_and_several_outputs_are_folded(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        words = v1.strings.join([v1.constant(["a", "b"]), "ż"])
        first, second = v1.split(v1.constant([1.0, 2.0]) * 3.0, 2)
        return v1.strings.join([v1.as_string(x[:, 0] * first + second), words[0]])

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants())
    assert result.applied
    assert len(model.graph.of("StringJoin")) == 1
    assert not model.graph.of("Split")


def test_output_that_is_constant_keeps_its_name(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None], name="x")
        return {"x": x}, {"y": v1.add(v1.constant(1.0), 2.0, name="three"), "z": x + 1.0}

    model, _ = checked(export_graph(tmp_path / "source", build), x_of(), FoldConstants())
    assert model.graph["three"].op == "Const"


def test_what_tensorflow_cannot_compute_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        words = v1.strings.to_number(v1.constant(["no number"]), name="parse")
        return v1.where(v1.reduce_sum(x) > 1e9, words * 2.0, v1.constant([1.0]) * 2.0)

    from helpers.graph_tools.pass_checks import rewritten

    model, results = rewritten(from_graph(tmp_path, build, 3), FoldConstants())
    assert [site for site, _ in results[-1].refused] == ["mul"]
    assert "no number" in results[-1].refused[0][1]
    assert "StringToNumber" in ops_of(model)
    assert results[-1].applied == 1


@pytest.mark.parametrize("name", ["folded", "intermediate"])
def test_removed_nodes_have_reasons(tmp_path: Path, name: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        intermediate = v1.add(v1.constant(1.0), 2.0, name="intermediate")
        return x * v1.multiply(intermediate, 3.0, name="folded")

    model, _ = checked(from_graph(tmp_path, build, 3), x_of(3), FoldConstants(), PruneUnreachable())
    if name == "folded":
        assert model.graph["folded"].op == "Const"
    else:
        assert model.graph.removed[name][1] == "only a constant needed it that was computed from it"


@pytest.mark.parametrize("rows", [10, 100])
def test_weights_stored_in_few_bits_stay_so(tmp_path: Path, rows: int) -> None:
    random = np.random.default_rng(3)
    stored = {
        "codes": random.integers(0, 256, (rows, 16)).astype(np.uint8),
        "scale": random.random((rows, 1)).astype(np.float16),
        "bias": random.normal(size=(rows, 1)).astype(np.float16),
    }

    def build(v1: Any, x: Any) -> Any:
        codes, scale, bias = (
            v1.cast(v1.get_variable(key, initializer=value), "float32") for key, value in stored.items()
        )
        return v1.matmul(x, codes * scale + bias, transpose_b=True)

    model, _ = checked(from_graph(tmp_path, build, 16), x_of(16), FoldConstants())
    assert model.variables["codes"].dtype == np.uint8
    assert not [name for name, tensor in model.variables.items() if tensor.dtype == np.float32]
    assert sum(node.attrs["value"].tensor.ByteSize() for node in model.graph.of("Const")) < 300

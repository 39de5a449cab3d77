# SPDX-License-Identifier: Apache-2.0
"""What can be loaded, that loading holds for every session, and that nothing is left when it fails or ends."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.abi_model import AbiModel, StatusError
from helpers.models import graph_models, model_builders
from helpers.system.process_state import num_fds, num_threads, resident_mb
from helpers.system.programs import run_python

X = np.array([[1.0, 2.0, 3.0]], np.float32)
THREE = {
    "session_num": 3,
    "select_session_policy": "RR",
    "intra_op_parallelism_threads": 1,
    "inter_op_parallelism_threads": 1,
}


def answers_of_every_session(path: Path, inputs: dict[str, Any], **more: object) -> list[np.ndarray]:
    with processor.Model(path, {**THREE, **more}) as model:
        answers = [model.run(inputs)["y"] for _ in range(6)]
        assert [session["responses"] for session in model.stats()["sessions"]] == [{"OK": 2}] * 3
    return answers


def test_tf1_reference_variables_take_the_default_executor(tf1_ref_model: Path) -> None:
    for answer in answers_of_every_session(tf1_ref_model, {"x": X}):
        np.testing.assert_array_equal(answer, model_builders.linear_score(X))
    with processor.Model(tf1_ref_model, THREE) as model:
        assert model.info["executor"] == "default"


def test_executor_that_the_graph_refuses_is_an_error_if_it_was_demanded(tf1_ref_model: Path) -> None:
    with pytest.raises(processor.ProcessorError):
        processor.Model(tf1_ref_model, {**THREE, "executor": "single_threaded"})


@pytest.mark.parametrize("executor", ["auto", "single_threaded", "default"])
def test_resource_variables_run_on_every_executor(tf1_model: Path, tiny_model: Path, executor: str) -> None:
    for path in (tf1_model, tiny_model):
        for answer in answers_of_every_session(path, {"x": X}, executor=executor):
            np.testing.assert_array_equal(answer, model_builders.linear_score(X))


@pytest.mark.parametrize("v1_flow", [False, True])
def test_loops_and_branches_are_served(tmp_path: Path, v1_flow: bool) -> None:
    path = graph_models.build_tf1(tmp_path / "loop", graph_models.double_until_hundred, v1_flow=v1_flow)
    for answer in answers_of_every_session(path, {"x": np.array([1.0, 2.0], np.float32)}):
        np.testing.assert_array_equal(answer, [64.0, 128.0])
    path = graph_models.build_tf1(tmp_path / "branch", graph_models.negate_if_negative, v1_flow=v1_flow)
    for x, y in ([3.0, 1.0], [6.0, 2.0]), ([-3.0, 1.0], [3.0, -1.0]):
        for answer in answers_of_every_session(path, {"x": np.array(x, np.float32)}):
            np.testing.assert_array_equal(answer, y)


def test_every_session_sees_a_table_without_shared_name(tmp_path: Path) -> None:
    path = graph_models.build_tf1(
        tmp_path / "model", graph_models.look_up_in_asset(tmp_path / "source"), dtype="string"
    )
    shutil.rmtree(tmp_path / "source")  # the asset in the model is what counts
    moved = tmp_path / "moved"
    path.rename(moved)
    for answer in answers_of_every_session(moved, {"x": [b"plum", b"apple", b"none"]}):
        np.testing.assert_array_equal(answer, [4.0, 0.0, -2.0])
    asset = next((moved / "assets").iterdir())
    asset.unlink()
    with pytest.raises(processor.NotFoundError, match=asset.name):
        processor.Model(moved, THREE)


def test_every_session_sees_a_table_of_tf2(string_model: Path) -> None:
    with processor.Model(string_model, THREE) as model:
        for _ in range(6):
            answer = model.run({"item": [b"pear", b"none"], "price": [0.5, 0.25]})
            np.testing.assert_array_equal(answer["score"], [10.5, 40.25])


def test_a_model_without_variables_is_served(tmp_path: Path) -> None:
    path = graph_models.build_without_variables(tmp_path / "model")
    for answer in answers_of_every_session(path, {"x": np.array([3.0], np.float32)}):
        np.testing.assert_array_equal(answer, [9.0])
    shutil.rmtree(path / "variables")
    for answer in answers_of_every_session(path, {"x": np.array([3.0], np.float32)}):
        np.testing.assert_array_equal(answer, [9.0])


def test_all_signatures_run_on_all_sessions(multi_signature_model: Path) -> None:
    with processor.Model(multi_signature_model, THREE) as model:
        for _ in range(3):
            np.testing.assert_array_equal(model.run({"x": [[1.0, 2.0]]})["twice"], [[2.0, 4.0]])
        for _ in range(3):
            totals = model.run({"a": [5], "b": [3]}, signature="total")
            assert (totals["sum"][0], totals["difference"][0]) == (8, 2)
        for _ in range(3):
            assert model.run({"text": [b"abc"]}, signature="length")["bytes"][0] == 3


def test_keras_exports_are_served(tmp_path: Path) -> None:
    path, x, expected = graph_models.build_keras(tmp_path / "keras")
    with processor.Model(path, THREE) as model:
        (name,) = model.signatures["serving_default"].inputs
        for _ in range(3):
            (answer,) = model.run({name if isinstance(name, str) else name.name: x}).values()
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)


def test_versions_with_equal_variable_names_serve_side_by_side(
    make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    paths = [make_linear_model(tmp_path / "ranking" / str(number), scale=number) for number in (1, 2, 3)]
    models = [AbiModel(path, dict(THREE)) for path in paths]
    faults: list[str] = []

    def work(number: int) -> None:
        expected = model_builders.linear_score(X, number)
        for _ in range(200):
            answer = models[number - 1].run({"x": X})
            if answer.model_version != number or not np.array_equal(answer.y, expected):
                faults.append(f"version {answer.model_version} answered {answer.y}, expected {expected}")

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]
    # One that is freed takes nothing from the others.
    models[1].free()
    with pytest.raises(StatusError, match="FAILED_PRECONDITION"):
        models[1].run({"x": X})
    for number in (1, 3):
        np.testing.assert_array_equal(models[number - 1].run({"x": X}).y, model_builders.linear_score(X, number))
    for model in models:
        model.__exit__(None, None, None)


def test_failed_load_leaves_no_threads_and_no_files(tiny_model: Path, tf1_ref_model: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_model, damaged)
    next((damaged / "variables").glob("*.data-*")).write_bytes(b"")
    threads = {"intra_op_parallelism_threads": 3, "session_num": 2}
    failing: list[tuple[Path, dict[str, object]]] = [
        (damaged, {}),
        (tmp_path / "absent", {}),
        (tiny_model, {"signature_name": "absent"}),
        (tiny_model, {"warmup_file_name": "absent"}),
        (tiny_model, {"checkpoint_dir": str(tmp_path)}),
        (tf1_ref_model, {"executor": "single_threaded"}),
    ]

    def fail_all() -> None:
        for path, more in failing:
            with pytest.raises(processor.ProcessorError):
                processor.Model(path, {**threads, **more})

    with processor.Model(tiny_model, threads):
        pass
    fail_all()
    before = num_threads(), num_fds()
    for _ in range(3):
        fail_all()
    assert (num_threads(), num_fds()) == before


@pytest.mark.slow
def test_many_lives_keep_threads_files_and_memory(tiny_model: Path) -> None:
    configs: list[dict[str, object]] = [
        {"intra_op_parallelism_threads": 2},
        {"session_num": 2, "execution": "pinned", "intra_op_parallelism_threads": 1},
        {"session_num": 2, "use_per_session_threads": True, "executor": "default", "inter_op_parallelism_threads": 2},
    ]

    def live(config: dict[str, object]) -> None:
        with processor.Model(tiny_model, {**config, "warmup_runs": 1}) as model:
            np.testing.assert_array_equal(model.run({"x": X})["y"], model_builders.linear_score(X))

    for number in range(15):
        live(configs[number % 3])
    gc.collect()
    before = num_threads(), num_fds(), resident_mb()
    for number in range(48):
        live(configs[number % 3])
    gc.collect()
    assert (num_threads(), num_fds()) == before[:2]
    assert resident_mb() - before[2] < 6


def test_memory_of_a_closed_model_goes_back_while_another_serves(tiny_model: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.tables = [tf.Variable(tf.fill([1_000_000, 1], float(i))) for i in range(10)]
    constants = [np.full([1_000_000, 1], i, np.float32) for i in range(10)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.add_n([tf.gather(table, x) for table in [*module.tables, *map(tf.constant, constants)]])}

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "eighty_megabytes"), signatures={"serving_default": serve})
    # In a process of its own, where malloc has not yet seen what earlier tests did.
    taken, left = run_python(
        """
        import sys, processor
        from helpers.system.process_state import resident_mb
        config = {"session_num": 1, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
        with processor.Model(sys.argv[1], config):
            def live():
                with processor.Model(sys.argv[2], config) as model:
                    assert model.run({"x": [5]})["y"][0] == 90
                    return resident_mb()
            live()
            before = resident_mb()
            taken = max(live() for _ in range(4)) - before
            print(taken, resident_mb() - before)
        """,
        tiny_model,
        tmp_path / "eighty_megabytes",
    ).split()
    assert float(taken) > 70, "the model is not resident: this would show nothing"
    assert float(left) < 8

# SPDX-License-Identifier: Apache-2.0
"""Requests for some outputs of a signature, and signatures that need different executors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import DropInModel
from helpers.models.quiet_tensorflow import tensorflow

X = np.array([1, 2], np.float32)
TWICE = [2, 4]


def export(path: Path, count: bool = False) -> Path:
    """Export two signatures of TensorFlow 1, whose outputs do not depend on each other.

    serving_default: x float32 [batch] -> twice float32 [batch];
    many: x float32 [batch], loops int32 [] -> twice, finite (fails for NaN), looped (float32 [384, 384], about a
    millisecond per loop), and with `count`: counted (int64 [], the number of runs that computed it).
    """
    v1 = tensorflow().compat.v1
    v1.disable_control_flow_v2()
    try:
        with v1.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder("float32", [None], name="x")
            loops = v1.placeholder("int32", [], name="loops")
            matrix = v1.get_variable("matrix", initializer=np.full((384, 384), 1e-4, np.float32), use_resource=True)
            runs = v1.get_variable("runs", initializer=np.int64(0), use_resource=True)
            looped = v1.while_loop(
                lambda i, _: i < loops, lambda i, product: (i + 1, v1.matmul(product, matrix)), (0, v1.identity(matrix))
            )[1]
            outputs = {"twice": x * 2.0, "finite": v1.check_numerics(x, "not finite"), "looped": looped}
            if count:
                outputs["counted"] = v1.identity(v1.assign_add(runs, 1))
            info = v1.saved_model.build_tensor_info

            def signature(inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
                return v1.saved_model.signature_def_utils.build_signature_def(
                    {key: info(tensor) for key, tensor in inputs.items()},
                    {key: info(tensor) for key, tensor in outputs.items()},
                    "tensorflow/serving/predict",
                )

            session.run(v1.global_variables_initializer())
            builder = v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                session,
                ["serve"],
                {
                    "serving_default": signature({"x": x}, {"twice": outputs["twice"]}),
                    "many": signature({"x": x, "loops": loops}, outputs),
                },
            )
            builder.save()
    finally:
        v1.enable_control_flow_v2()
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("outputs") / "model")


def ask(model: DropInModel, outputs: tuple[str, ...], x: np.ndarray = X, loops: int = 0) -> dict[str, np.ndarray]:
    answer = model.process(encode({"x": x, "loops": np.array(loops, np.int32)}, "many", outputs=outputs))
    assert answer.status == 200, answer.text
    return decode(answer.data or b"")


@pytest.mark.parametrize("threads", [{}, {"inter_op_parallelism_threads": 2}])
def test_loop_in_one_signature_leaves_the_others_on_the_single_threaded_executor(
    exported: Path, threads: dict[str, int]
) -> None:
    with DropInModel(exported, session_num=2, select_session_policy="RR", **threads) as model:
        found = {entry["signature_name"]: entry["executor"] for entry in model.ask("signatures")}
        assert found == {"serving_default": "single_threaded", "many": "default"}
        assert model.ask("info")["executor"] == "single_threaded"
        for _ in range(4):
            assert decode(model.process(encode({"x": X})).data or b"")["twice"].tolist() == TWICE
            answer = ask(model, (), loops=2)
            assert answer["twice"].tolist() == TWICE
            np.testing.assert_allclose(answer["looped"], 1e-4 * (384 * 1e-4) ** 2, rtol=1e-5)


def test_some_outputs_come_from_the_callable_of_all_until_there_is_one_for_them(exported: Path) -> None:
    with DropInModel(exported, session_num=2, select_session_policy="RR") as model:
        assert ask(model, ("twice",))["twice"].tolist() == TWICE
        deadline, quick = time.monotonic() + 120, 0
        while quick < 4:  # both sessions, more than once
            start = time.monotonic()
            answer = ask(model, ("twice",), loops=400)
            assert set(answer) == {"twice"}
            assert answer["twice"].tolist() == TWICE
            quick = quick + 1 if time.monotonic() - start < 0.1 else 0
            assert time.monotonic() < deadline, "the loop is still computed"
        assert list(ask(model, ("finite", "twice"))) == ["finite", "twice"]


def test_failing_output_does_not_fail_requests_for_others(exported: Path) -> None:
    nan = np.array([np.nan], np.float32)
    with DropInModel(exported) as model:
        assert np.isnan(ask(model, ("twice",), nan)["twice"]).all()
        assert model.process(encode({"x": nan, "loops": np.array(0, np.int32)}, "many")).status == 500
        assert np.isnan(ask(model, ("looped", "twice"), nan)["twice"]).all()


def test_outputs_that_change_state_are_computed_for_requests_that_want_them_only(tmp_path: Path) -> None:
    with DropInModel(export(tmp_path / "model", count=True)) as model:
        before = int(ask(model, ("counted",))["counted"])
        for _ in range(5):
            assert ask(model, ("twice", "finite"))["twice"].tolist() == TWICE
        assert int(ask(model, ("counted",))["counted"]) == before + 1


def test_any_number_of_subsets_is_served(tmp_path: Path) -> None:
    """More of them than there may be callables."""
    v1 = tensorflow().compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder("float32", [], name="x")
        outputs = {f"y{i}": x + float(i) for i in range(13)}
        v1.saved_model.simple_save(session, str(tmp_path / "model"), inputs={"x": x}, outputs=outputs)
    with DropInModel(tmp_path / "model") as model:
        for first in range(13):
            for second in range(first + 1, 13):
                wanted = (f"y{second}", f"y{first}")
                answer = model.process(encode({"x": np.array(1, np.float32)}, outputs=wanted))
                assert answer.status == 200, answer.text
                found = {name: float(value) for name, value in decode(answer.data or b"").items()}
                assert found == {f"y{first}": 1.0 + first, f"y{second}": 1.0 + second}

# SPDX-License-Identifier: Apache-2.0
"""What a model tells of its signatures, which one a request means, and signatures that are not as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import DropInModel, drop_in_config, load, refusal
from helpers.models import model_builders
from helpers.models.special_models import build_counter, edit_model

X = np.array([[1, 2, 3]], np.float32)


def described(specs: list[dict[str, Any]]) -> list[tuple[str, str, list[int] | None]]:
    return [(spec["name"], spec["dtype"], spec["shape"]) for spec in specs]


def test_all_signatures_are_listed_by_name(multi_signature_model: Path) -> None:
    with DropInModel(multi_signature_model) as model:
        signatures = model.ask("signatures")
        assert model.ask("info")["signatures"] == signatures
    assert [signature["signature_name"] for signature in signatures] == ["length", "serving_default", "total"]
    assert {signature["method_name"] for signature in signatures} == {"tensorflow/serving/predict"}
    assert [signature["default"] for signature in signatures] == [False, True, False]
    length, default, total = signatures
    assert described(length["inputs"]) == [("text", "DT_STRING", [-1])]
    assert described(length["outputs"]) == [("bytes", "DT_INT32", [-1])]
    assert described(default["inputs"]) == [("x", "DT_FLOAT", [-1, 2])]
    assert described(total["inputs"]) == [("a", "DT_INT64", [-1]), ("b", "DT_INT64", [-1])]
    assert described(total["outputs"]) == [("difference", "DT_INT64", [-1]), ("sum", "DT_INT64", [-1])]


def test_tensor_names_are_those_of_the_saved_model(multi_signature_model: Path) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    data = (multi_signature_model / "saved_model.pb").read_bytes()
    (meta_graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    with DropInModel(multi_signature_model) as model:
        for signature in model.ask("signatures"):
            expected = meta_graph.signature_def[signature["signature_name"]]
            for found, wanted in ((signature["inputs"], expected.inputs), (signature["outputs"], expected.outputs)):
                assert {spec["name"]: spec["tensor"] for spec in found} == {k: v.name for k, v in wanted.items()}


def test_tf1_signatures_are_served(tf1_model: Path) -> None:
    with DropInModel(tf1_model) as model:
        (signature,) = model.ask("signatures")
    assert signature["inputs"] == [{"name": "x", "tensor": "x:0", "dtype": "DT_FLOAT", "shape": [-1, 3]}]
    assert signature["outputs"] == [{"name": "y", "tensor": "y:0", "dtype": "DT_FLOAT", "shape": [-1, 1]}]


def test_signatures_show_open_ranks(echo_model: Path) -> None:
    with DropInModel(echo_model, signature_name="DT_DOUBLE", executor="single_threaded") as model:
        signatures = {signature["signature_name"]: signature for signature in model.ask("signatures")}
        assert set(signatures) == set(model_builders.DTYPES)
        for name, signature in signatures.items():
            assert described(signature["inputs"]) == [("x", name, None)]
        # The contract's text has no word for an open rank.
        assert json.loads(model.process(b"").text) == {
            "signature_name": "DT_DOUBLE",
            "inputs": [{"name": "x", "shape": [], "type": "DT_DOUBLE"}],
            "outputs": [{"name": "y", "shape": [], "type": "DT_DOUBLE"}],
        }


def test_the_default_signature_is_chosen(multi_signature_model: Path, tmp_path: Path) -> None:
    with DropInModel(multi_signature_model, signature_name="length") as model:
        assert model.ask("info")["default_signature"] == "length"
    assert load(multi_signature_model, {"signature_name": "total"}) == ("OK", "")
    status, message = load(multi_signature_model, {"signature_name": "ranking"})
    assert status == "NOT_FOUND"
    assert message.startswith("signature_name 'ranking': not in the model")

    def rename(meta_graph: Any) -> None:
        meta_graph.signature_def["a"].CopyFrom(meta_graph.signature_def["serving_default"])
        del meta_graph.signature_def["serving_default"]

    path = edit_model(multi_signature_model, tmp_path / "renamed", rename)
    assert load(path) == ("OK", "")  # by processor.h the first by name serves
    assert "'serving_default': not in the model" in refusal(drop_in_config(path))


@pytest.mark.parametrize("name", ["serving_defaul", "serving_default ", "SERVING", "__saved_model_init_op", "\n"])
def test_unknown_signature_in_a_request_is_refused(name: str, multi_signature_model: Path) -> None:
    good = {"x": np.array([[1, 2]], np.float32)}
    with DropInModel(multi_signature_model) as model:
        answer = model.process(encode(good, name))
        assert answer.status == 500
        assert "signature '" in answer.text
        assert "length, serving_default, total" in answer.text
        assert decode(model.process(encode(good)).data or b"")["twice"].tolist() == [[2, 4]]


def test_inputs_of_another_signature_are_refused(multi_signature_model: Path) -> None:
    with DropInModel(multi_signature_model) as model:
        answer = model.process(encode({"a": np.array([1]), "b": np.array([1])}))
        assert answer.status == 500
        assert "input 'a': not in signature 'serving_default' (has x)" in answer.text


@pytest.mark.parametrize("executor", ["auto", "default"])
def test_signatures_share_variables(executor: str, models_root: Path) -> None:
    path = models_root / "shared_counter"
    if not path.exists():
        build_counter(path)
    with DropInModel(path, executor=executor, session_num=2, select_session_policy="RR") as model:
        totals = []
        for amount in (3, 4, 5):
            for signature, inputs in (("twice", {"amount": np.array([amount])}), ("now", {})):
                answer = model.process(encode(inputs, signature))
                totals.append(int(decode(answer.data or b"")["total"]))
        warmed = 2 * 5
        assert totals == [warmed + total for total in (6, 6, 14, 14, 24, 24)]


# Signatures that do not fit their graph


def test_default_signature_without_its_tensor_fails_the_load(tiny_model: Path, tmp_path: Path) -> None:
    for kind in ("inputs", "outputs"):

        def point_elsewhere(meta_graph: Any, kind: str = kind) -> None:
            (info,) = getattr(meta_graph.signature_def["serving_default"], kind).values()
            info.name = "nowhere:0"

        reason = refusal(drop_in_config(edit_model(tiny_model, tmp_path / kind, point_elsewhere)))
        assert "signature 'serving_default'" in reason
        assert "nowhere" in reason


def test_other_signature_without_its_tensor_fails_its_requests_only(
    multi_signature_model: Path, tmp_path: Path
) -> None:
    def point_elsewhere(meta_graph: Any) -> None:
        meta_graph.signature_def["total"].outputs["sum"].name = "nowhere:0"

    with DropInModel(edit_model(multi_signature_model, tmp_path / "model", point_elsewhere)) as model:
        for _ in range(2):
            answer = model.process(encode({"a": np.array([1]), "b": np.array([2])}, "total"))
            assert answer.status == 500
            assert "nowhere" in answer.text
            good = encode({"x": np.array([[1, 2]], np.float32)})
            assert decode(model.process(good).data or b"")["twice"].tolist() == [[2, 4]]


def test_impossible_shapes_in_a_signature_are_taken_as_open(tiny_model: Path, tmp_path: Path) -> None:
    for number, sizes in enumerate(([-5, 3], [1 << 62, 1 << 62], [-(1 << 63)], [1] * 300)):

        def spoil(meta_graph: Any, sizes: list[int] = sizes) -> None:
            shape = meta_graph.signature_def["serving_default"].inputs["x"].tensor_shape
            shape.Clear()
            for size in sizes:
                shape.dim.add(size=size)

        with DropInModel(edit_model(tiny_model, tmp_path / str(number), spoil)) as model:
            answer = model.process(encode({"x": X}))
            if answer.status == 200:
                np.testing.assert_allclose(decode(answer.data or b"")["y"], model_builders.linear_score(X))
            else:
                assert "input 'x': shape [1,3], expected" in answer.text


def test_a_model_without_signatures_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    path = edit_model(tiny_model, tmp_path / "none", lambda meta_graph: meta_graph.signature_def.clear())
    assert refusal(drop_in_config(path)).endswith(f"savedmodel_dir '{path}': no signature")


def test_dtype_of_an_input_is_that_of_the_graph(tiny_model: Path, tmp_path: Path) -> None:
    # TensorFlow ends the process when a kernel gets a tensor of another dtype than its graph says.
    def change(meta_graph: Any) -> None:
        meta_graph.signature_def["serving_default"].inputs["x"].dtype = 9

    with DropInModel(edit_model(tiny_model, tmp_path / "dtype", change)) as model:
        (line,) = model.log
        assert line.text == (
            "signature 'serving_default': input 'x' has DT_INT64, expected DT_FLOAT as in the graph, which is taken"
        )
        answer = model.process(encode({"x": np.array([[1, 2, 3]])}))
        assert answer.status == 500
        assert "input 'x': dtype DT_INT64, expected DT_FLOAT" in answer.text
        np.testing.assert_allclose(
            decode(model.process(encode({"x": X})).data or b"")["y"], model_builders.linear_score(X)
        )


def test_two_inputs_on_one_tensor_fail_the_load(tiny_model: Path, tmp_path: Path) -> None:
    def double(meta_graph: Any) -> None:
        inputs = meta_graph.signature_def["serving_default"].inputs
        inputs["again"].CopyFrom(inputs["x"])

    assert "signature 'serving_default'" in refusal(drop_in_config(edit_model(tiny_model, tmp_path / "twice", double)))

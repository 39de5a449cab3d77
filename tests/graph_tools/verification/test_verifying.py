# SPDX-License-Identifier: Apache-2.0
"""Test whole verifications: equal models are equal, and a single difference of any kind is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graph_tools import verify
from graph_tools.errors import UnreadableError, UsageError
from graph_tools.readers import read_model
from graph_tools.verification import Tolerance
from graph_tools.verification.report import Refused
from graph_tools.writer import write_saved_model
from helpers.models import model_builders, verify_models

ROWS = np.array([[0.5, 1.0], [0.25, -2.0], [3.0, 0.125], [0.0, 0.0], [1.5, 2.5], [9.0, -9.0]], np.float32)


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return verify_models.build_lookup(tmp_path_factory.mktemp("lookup") / "model", rows=ROWS)


def test_a_model_equals_itself_bit_for_bit(string_model: Path) -> None:
    report = verify(string_model, string_model, samples=16)
    assert report.passed
    assert report.bit_exact
    assert report.requests == 16
    assert {output.name: output.elements > 1000 for output in report.outputs} == {
        "id": True,
        "label": True,
        "score": True,
    }


def test_tf1_and_tf2_exports_of_one_model_are_equal(tiny_model: Path, tf1_ref_model: Path) -> None:
    report = verify(tiny_model, tf1_ref_model, samples=14)
    assert report.passed, report.reasons
    assert report.signatures[0].answered == 13  # all but the one of no row


def test_one_weight_beyond_the_tolerance_is_found(lookup: Path, tmp_path: Path) -> None:
    b = verify_models.build_lookup(tmp_path / "b", rows=_moved_up_to_tolerance(beyond=True))
    # By a last place, which is less than rounding may do.
    report = verify(lookup, b, tolerance="1e-5,1e-5", rounding=False)
    (output,) = report.outputs
    assert not report.passed
    assert output.beyond > 0
    assert output.worst is not None
    assert output.worst.a == pytest.approx(2.5)


def test_one_weight_at_the_tolerance_passes_and_is_reported(lookup: Path, tmp_path: Path) -> None:
    b = verify_models.build_lookup(tmp_path / "b", rows=_moved_up_to_tolerance(beyond=False))
    report = verify(lookup, b, tolerance="1e-5,1e-5")
    (output,) = report.outputs
    assert report.passed, report.reasons
    assert not report.bit_exact
    assert output.different > 0


def _moved_up_to_tolerance(beyond: bool) -> np.ndarray:
    """Move one weight as far as the tolerance lets it, or one unit in the last place further."""
    rows = ROWS.copy()
    a = rows[4, 1]
    b = a
    while abs(float(a) - float(b)) <= 1e-5 + 1e-5 * abs(float(b)):
        last, b = b, np.nextafter(b, np.float32(10))
    rows[4, 1] = b if beyond else last
    return rows


def test_a_swapped_vocabulary_is_found(lookup: Path, tmp_path: Path) -> None:
    words = ("pear", "apple", *verify_models.WORDS[2:])
    report = verify(lookup, verify_models.build_lookup(tmp_path / "b", words=words, rows=ROWS))
    assert not report.passed
    assert "output 'score'" in report.reasons[0]


def test_a_changed_absent_row_is_found(lookup: Path, tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[-1] = 0
    report = verify(lookup, verify_models.build_lookup(tmp_path / "b", rows=rows))
    assert not report.passed
    assert not verify(lookup, verify_models.build_lookup(tmp_path / "c", rows=ROWS, absent=0)).passed


def test_nan_is_found_and_equals_nan_only(lookup: Path, tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[2, 0] = np.nan
    b = verify_models.build_lookup(tmp_path / "b", rows=rows)
    report = verify(lookup, b, tolerance=Tolerance(1e9, 1e9))
    (output,) = report.outputs
    assert not report.passed
    assert (output.nan_a, output.nan_b > 0) == (0, True)
    same = verify(b, b)
    assert same.bit_exact
    assert same.outputs[0].nan_a == same.outputs[0].nan_b > 0


def test_a_wrong_asset_is_found(string_model: Path, tmp_path: Path) -> None:
    import shutil

    b = Path(shutil.copytree(string_model, tmp_path / "b"))
    (vocabulary,) = (b / "assets").iterdir()
    lines = vocabulary.read_text(encoding="utf-8").splitlines()
    vocabulary.write_text("\n".join([*lines[1:], lines[0]]) + "\n", encoding="utf-8")
    report = verify(string_model, b)
    wrong = {output.name for output in report.outputs if not output.equal}
    assert wrong == {"id", "score"}
    # Scores may differ in a lossy conversion, ids may not.
    assert [output.name for output in report.outputs if output.only_scores_differ] == ["score"]


def test_sparse_inputs_are_recognized_by_their_use(tmp_path: Path) -> None:
    a = verify_models.build_bags(tmp_path / "a")
    report = verify(a, a, samples=20)
    assert report.passed, report.reasons
    refused = [request.request for request in report.refused]
    # Row numbers that the table does not have are refused, and nothing else is: the sparse tensors fit.
    assert refused == ["generated 9, ids out of range"]
    assert not verify(a, verify_models.build_bags(tmp_path / "b", scale=1.01)).passed


def test_examples_are_made_of_the_features_that_are_parsed(tmp_path: Path) -> None:
    a = verify_models.build_examples(tmp_path / "a")
    report = verify(a, a, samples=14)
    assert report.passed, report.reasons
    assert report.signatures[0].answered == 13
    assert not verify(a, verify_models.build_examples(tmp_path / "b", factor=2.1), samples=14).passed


def test_a_request_that_one_model_refuses_is_a_difference(lookup: Path, tmp_path: Path) -> None:
    smaller = verify_models.build_lookup(tmp_path / "b", rows=ROWS[:-1])
    report = verify(lookup, smaller)
    assert not report.passed
    assert any(
        request.a is None and request.b is not None and request.b.startswith("INVALID_ARGUMENT")
        for request in report.refused
    )


def test_only_a_request_of_no_rows_may_be_answered_by_the_second_alone() -> None:
    refused = "INVALID_ARGUMENT: no rows"
    assert Refused("s", "r", refused, None, empty=True).equal
    assert Refused("s", "r", refused, "INVALID_ARGUMENT: other words").equal
    assert not Refused("s", "r", refused, "INTERNAL: no rows").equal
    assert not Refused("s", "r", refused, None).equal
    assert not Refused("s", "r", None, refused).equal


def test_frozen_graph_is_run(tiny_model: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.add(tf.matmul(x, tf.constant([[1.0], [2.0], [3.0]])), 0.5, name="y")
    (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    report = verify(tmp_path / "frozen.pb", tiny_model, samples=12)
    assert report.passed, report.reasons
    assert report.a.how == "session on a GraphDef"


def test_another_interface_is_a_difference(tiny_model: Path, string_model: Path, multi_signature_model: Path) -> None:
    report = verify(tiny_model, string_model)
    assert not report.passed
    assert "signature 'serving_default', input 'item': only the second model has it, expected both" in report.reasons
    partly = verify(multi_signature_model, _kept(multi_signature_model, tiny_model.parent / "kept", "total"), samples=8)
    assert partly.passed, partly.reasons
    assert "signature 'length': only the first model has it" in partly.not_compared


def _kept(source: Path, target: Path, signature: str) -> Path:
    if not target.exists():
        write_saved_model(read_model(source, signatures=(signature,)), target)
    return target


def test_no_request_is_no_proof(tiny_model: Path) -> None:
    report = verify(tiny_model, tiny_model, samples=0)
    assert not report.passed
    assert "none of 0 requests was answered" in report.reasons[0]


def test_a_model_with_a_broken_object_graph_is_verified(tiny_model: Path, tf1_model: Path, tmp_path: Path) -> None:
    import shutil

    from tensorflow.core.protobuf import saved_model_pb2

    a = Path(shutil.copytree(tiny_model, tmp_path / "a"))
    message = saved_model_pb2.SavedModel.FromString((a / "saved_model.pb").read_bytes())
    for node in message.meta_graphs[0].object_graph_def.nodes:
        if node.WhichOneof("kind") == "variable":
            node.variable.dtype = 0
    (a / "saved_model.pb").write_bytes(message.SerializeToString())
    report = verify(a, tf1_model, samples=8)
    assert report.passed, report.reasons
    assert (report.a.how, report.b.how) == ("session", "session")


def test_weights_of_another_checkpoint(
    tiny_model: Path, make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    other = make_linear_model(tmp_path / "other", 3.0)
    taken = read_model(tiny_model, checkpoint=other / "variables" / "variables")
    assert verify(taken, other, samples=8).passed
    assert not verify(taken, tiny_model, samples=8).passed


def test_unknown_ops_are_refused_if_an_output_needs_them(tiny_model: Path, tmp_path: Path) -> None:
    needed, beside = read_model(tiny_model), read_model(tiny_model)
    for model in (needed, beside):
        (product,) = model.graph.of("MatMul")
        foreign = model.graph.add("TrainFaster", [product.output()])
        if model is needed:
            model.graph.replace(product.output(), foreign.output())
            model.graph.set_input(foreign, 0, product.output())
    assert verify(beside, tiny_model, samples=8).passed
    with pytest.raises(UnreadableError, match=r"TrainFaster .* --op-library may name"):
        verify(needed, tiny_model, samples=8)


def test_wrong_use_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tolerance: '1e-5,x', expected"):
        verify(tiny_model, tiny_model, tolerance="1e-5,x")
    with pytest.raises(UsageError, match="samples: -1"):
        verify(tiny_model, tiny_model, samples=-1)
    with pytest.raises(UnreadableError, match="does not exist, expected a SavedModel"):
        verify(tiny_model, tmp_path / "none")
    with pytest.raises(UnreadableError, match="expected a library of TensorFlow ops"):
        verify(tiny_model, tiny_model, op_library=tmp_path / "none.so")


def test_above_the_memory_limit_tables_stream(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    a = verify_models.build_lookup(tmp_path / "a", rows=rows)
    b = verify_models.build_lookup(tmp_path / "b", rows=rows)
    report = verify(a, b, memory_limit=256, samples=14)
    assert report.passed, report.reasons
    assert report.a.how == "TensorFlow, lookups in NumPy"
    assert [(table.name, table.rows) for table in report.tables] == [("rows", 6)]
    wrong = rows.copy()
    wrong[3, 1] += 1
    changed = verify(a, verify_models.build_lookup(tmp_path / "c", rows=wrong), memory_limit=256, samples=14)
    assert not changed.tables[0].equal
    assert changed.tables[0].worst == "key 3"
    assert not all(output.equal for output in changed.outputs)


def test_staged_answers_equal_tensorflows(tmp_path: Path) -> None:
    from graph_tools.verification.generate import Generator
    from graph_tools.verification.runner import SessionRunner
    from graph_tools.verification.staged import StagedRunner

    for path in (verify_models.build_bags(tmp_path / "bags"), model_builders.build_string(tmp_path / "string")):
        model = read_model(path)
        requests = list(Generator(model, name="serving_default").requests(13))
        stock, staged = SessionRunner(model), StagedRunner(model, 1)
        first, second = (runner.run(requests, lambda: None) for runner in (stock, staged))
        stock.close()
        staged.close()
        for a, b in zip(first, second, strict=True):
            assert type(a) is type(b)
            if isinstance(a, dict) and isinstance(b, dict):
                for key in a:
                    np.testing.assert_array_equal(a[key], b[key])

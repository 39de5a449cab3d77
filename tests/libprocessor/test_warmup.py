# SPDX-License-Identifier: Apache-2.0
"""Warm-up from a file, from TensorFlow Serving's records, or generated: every session, before the model is ready."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import DropInModel, drop_in_config, refusal
from helpers.models import special_models

AMOUNT = {"amount": np.array([3, 2]), "note": [b"a", b"b"]}
NOTHING = encode({"amount": np.array([0]), "note": [b""]})


@pytest.fixture(scope="module")
def counter_model(models_root: Path) -> Path:
    return special_models.build_counter(models_root / "counter")


@pytest.fixture
def counter(counter_model: Path, tmp_path: Path) -> Path:
    """A copy of the counting model, to add files to."""
    return Path(shutil.copytree(counter_model, tmp_path / "model"))


def total(model: DropInModel) -> int:
    """Return the sum of what all runs before this one have added."""
    answer = model.process(NOTHING)
    assert answer.status == 200, answer
    return int(decode(answer.data or b"")["total"])


def warmup(model: DropInModel) -> str:
    outcome: str = model.ask("info")["warmup"]
    return outcome


# From a file of the contract


def test_file_is_run_on_every_session(counter: Path, tmp_path: Path) -> None:
    file = tmp_path / "warm"
    file.write_bytes(encode(AMOUNT))
    with DropInModel(counter, warmup_file_name=str(file), session_num=3) as model:
        assert warmup(model) == "file: 5 runs on each session"
        assert total(model) == 3 * 5 * 5
    with DropInModel(counter, warmup_file_name=str(file), session_num=2, warmup_runs=3) as model:
        assert warmup(model) == "file: 3 runs on each session"
        assert total(model) == 2 * 3 * 5


def test_warm_up_is_not_in_the_statistics(counter: Path) -> None:
    with DropInModel(counter, session_num=2) as model:
        stats = model.ask("stats")
        assert stats["requests"] == 0
        assert [session["requests"] for session in stats["sessions"]] == [0, 0]
        assert stats["run_us"]["count"] == 0
        total(model)
        assert model.ask("stats")["requests"] == 1


def test_file_relative_to_the_working_directory_then_to_the_model_entry(
    counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "entry" / "warm").mkdir(parents=True)
    (tmp_path / "entry" / "warm" / "request").write_bytes(encode(AMOUNT))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    keys: dict[str, Any] = {"warmup_file_name": "warm/request", "warmup_runs": 1}
    with DropInModel(counter, str(tmp_path / "entry"), **keys) as model:
        assert total(model) == 5
    (tmp_path / "here" / "warm").mkdir()
    (tmp_path / "here" / "warm" / "request").write_bytes(encode({"amount": np.array([7]), "note": [b""]}))
    with DropInModel(counter, str(tmp_path / "entry"), **keys) as model:
        assert total(model) == 7
    with DropInModel(counter, "", **keys) as model:
        assert total(model) == 7


def test_file_may_name_a_signature(counter: Path, tmp_path: Path) -> None:
    (tmp_path / "warm").write_bytes(encode({"amount": np.array([4])}, signature="twice"))
    with DropInModel(counter, warmup_file_name=str(tmp_path / "warm"), warmup_runs=2) as model:
        assert total(model) == 2 * 2 * 4


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\xff\xff\xff", "malformed or truncated"),
        (encode(AMOUNT)[:-3], "malformed or truncated"),
        (b"", "'amount': missing"),
        (encode(AMOUNT | {"other": [b""]}), "'other'"),
        (encode(AMOUNT | {"note": [1.0, 2.0]}), "'note': dtype DT_DOUBLE, expected DT_STRING"),
        (encode(AMOUNT | {"note": [b"one"]}), "assert"),
        (encode(AMOUNT, signature="none"), "'none'"),
        (None, "no such file"),
    ],
    ids=["bytes", "truncated", "empty", "unknown input", "dtype", "does not run", "signature", "missing"],
)
def test_file_that_does_not_run_fails_the_load(content: bytes | None, word: str, counter: Path, tmp_path: Path) -> None:
    file = tmp_path / "warm"
    if content is not None:
        file.write_bytes(content)
    reason = refusal(drop_in_config(counter, warmup_file_name=str(file)))
    assert f"warmup_file_name '{file}': " in reason
    assert word in reason


def test_a_folder_as_warm_up_file_is_refused(counter: Path, tmp_path: Path) -> None:
    reason = refusal(drop_in_config(counter, warmup_file_name=str(tmp_path)))
    assert f"warmup_file_name '{tmp_path}': no such file" in reason


# From TensorFlow Serving's records


def predict_log(inputs: dict[str, Any], signature: str = "serving_default") -> Any:
    import tensorflow as tf

    if importlib.util.find_spec("tensorflow_serving") is None:
        what = "tensorflow-serving-api is missing: pip install --no-deps 'tensorflow-serving-api==2.21.*'"
        assert os.environ.get("CI") != "true", what
        pytest.skip(what)
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "whatever the recorder called it"
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def write_records(model: Path, records: Iterable[bytes]) -> Path:
    import tensorflow as tf

    file = model / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)
    return file


def amounts(*values: int) -> bytes:
    inputs = {"amount": np.array(values, np.int64), "note": [b"n"] * len(values)}
    data: bytes = predict_log(inputs).SerializeToString()
    return data


def test_records_are_run_on_every_session(counter: Path) -> None:
    twice = predict_log({"amount": np.array([1000], np.int64)}, "twice").SerializeToString()
    write_records(counter, [amounts(1, 2), twice, amounts(10)])
    with DropInModel(counter, session_num=2) as model:
        assert warmup(model) == "tf_serving_warmup_requests: 3 records on each session"
        assert total(model) == 2 * 2013


def test_file_of_the_configuration_goes_before_records(counter: Path, tmp_path: Path) -> None:
    write_records(counter, [amounts(1)])
    (tmp_path / "warm").write_bytes(encode(AMOUNT))
    with DropInModel(counter, warmup_file_name=str(tmp_path / "warm"), warmup_runs=1) as model:
        assert total(model) == 5


def test_file_of_the_configuration_may_hold_records(counter: Path, tmp_path: Path) -> None:
    records = write_records(counter, [amounts(1, 2), amounts(10)])
    file = records.rename(tmp_path / "warm")
    with DropInModel(counter, warmup_file_name=str(file), session_num=2) as model:
        assert warmup(model) == "file: 2 records on each session"
        assert total(model) == 2 * 13
    file.write_bytes(file.read_bytes()[:-1])
    assert f"warmup_file_name '{file}': warm-up record 1 of " in refusal(
        drop_in_config(counter, warmup_file_name=str(file))
    )


def test_file_of_the_configuration_without_a_predict_request_is_refused(counter: Path, tmp_path: Path) -> None:
    amounts(1)  # skips where the messages are missing
    from tensorflow_serving.apis import prediction_log_pb2

    other = prediction_log_pb2.PredictionLog(classify_log=prediction_log_pb2.ClassifyLog()).SerializeToString()
    file = write_records(counter, [other]).rename(tmp_path / "warm")
    assert "no predict request in it, expected at least one" in refusal(
        drop_in_config(counter, warmup_file_name=str(file))
    )


def test_records_of_other_apis_are_skipped(counter: Path) -> None:
    amounts(1)  # skips where the messages are missing
    from tensorflow_serving.apis import classification_pb2, prediction_log_pb2

    classify = prediction_log_pb2.ClassifyLog(request=classification_pb2.ClassificationRequest())
    other = prediction_log_pb2.PredictionLog(classify_log=classify).SerializeToString()
    write_records(counter, [other, amounts(6), other])
    with DropInModel(counter) as model:
        assert warmup(model) == "tf_serving_warmup_requests: 1 records on each session, 2 of other APIs skipped"
        assert total(model) == 6


def test_a_generated_request_replaces_records_without_a_request(counter: Path) -> None:
    write_records(counter, [])
    with DropInModel(counter, session_num=2) as model:
        assert warmup(model) == (
            "tf_serving_warmup_requests: 0 records on each session; generated: 5 runs on each session"
        )
        assert total(model) == 2 * 5


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda data: data[:-7], "record 1"),
        (lambda data: data[:-1], "record 1"),
        (lambda data: data[:-20] + b"\x00" * 4 + data[-16:], "record 1"),
        (lambda data: b"\x00" + data[1:], "record 0"),
        (lambda data: b"plain text, not records", "record 0"),
    ],
    ids=["truncated", "one byte short", "checksum", "length", "text"],
)
def test_damaged_records_fail_the_load(damage: Callable[[bytes], bytes], word: str, counter: Path) -> None:
    file = write_records(counter, [amounts(1), amounts(2)])
    file.write_bytes(damage(file.read_bytes()))
    reason = refusal(drop_in_config(counter))
    assert reason.startswith(f"initialize failed: DATA_LOSS: warm-up {word} of '{file}': ")


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (lambda: b"\xff\xff", "PredictionLog"),
        (lambda: b"", "PredictionLog"),
        (lambda: predict_log({"amount": np.array([1], np.int64)}).SerializeToString(), "'note': missing"),
        (lambda: predict_log({"amount": np.array([1.0])}, "twice").SerializeToString(), "'amount': dtype DT_DOUBLE"),
        (lambda: predict_log({}, "none").SerializeToString(), "'none'"),
        (lambda: predict_log({"amount": np.array([1], np.int64), "note": [b"", b""]}).SerializeToString(), "assert"),
    ],
    ids=["bytes", "empty", "missing input", "dtype", "signature", "does not run"],
)
def test_records_that_do_not_run_fail_the_load(record: Callable[[], bytes], word: str, counter: Path) -> None:
    file = write_records(counter, [amounts(1), record()])
    reason = refusal(drop_in_config(counter))
    assert f"warm-up record 1 of '{file}': " in reason
    assert word in reason


# Generated


def test_generated_runs_on_every_session(counter: Path) -> None:
    with DropInModel(counter, session_num=3) as model:
        assert warmup(model) == "generated: 5 runs on each session"
        assert total(model) == 3 * 5  # ones
    with DropInModel(counter, session_num=2, warmup_runs=2, signature_name="twice") as model:
        assert warmup(model) == "generated: 2 runs on each session"
        answer = model.process(encode({"amount": np.array([0])}))
        assert decode(answer.data or b"")["total"] == 2 * 2 * 2


def test_generated_for_string_inputs(string_model: Path) -> None:
    with DropInModel(string_model) as model:
        assert warmup(model) == "generated: 5 runs on each session"


def test_generated_for_every_dtype_and_an_open_rank(models_root: Path) -> None:
    with DropInModel(special_models.build_every_dtype(models_root / "every_dtype")) as model:
        assert warmup(model) == "generated: 5 runs on each session"


def test_generated_request_that_does_not_run_leaves_a_model_that_serves(models_root: Path) -> None:
    with DropInModel(special_models.build_parser(models_root / "parser"), session_num=2) as model:
        assert warmup(model).startswith("generated request failed: INVALID_ARGUMENT: ")
        answer = model.process(encode({"text": [b"2.5", b"-1"]}))
        assert decode(answer.data or b"")["number"].tolist() == [2.5, -1.0]


def test_generated_request_is_not_of_enormous_size(tiny_model: Path, tmp_path: Path) -> None:
    for number, sizes in enumerate(([1 << 40], [1 << 31, 1 << 31, 3], [4, 1 << 62], [-1, 1 << 62, 1 << 62])):

        def enlarge(meta_graph: Any, sizes: list[int] = sizes) -> None:
            shape = meta_graph.signature_def["serving_default"].inputs["x"].tensor_shape
            shape.Clear()
            for size in sizes:
                shape.dim.add(size=size)

        path = special_models.edit_model(tiny_model, tmp_path / str(number), enlarge)
        with DropInModel(path) as model:
            assert warmup(model).startswith("generated request failed: "), sizes


def test_generated_request_takes_no_more_memory_than_requests_may(models_root: Path) -> None:
    with DropInModel(special_models.build_hungry(models_root / "hungry")) as model:
        outcome = warmup(model)
        assert outcome.startswith("generated request failed: RESOURCE_EXHAUSTED: "), outcome
        assert outcome.endswith("; not warmed up")
        answer = model.process(encode({"x": np.ones(1, np.float32)}))
        assert answer.status != 200
        answer = model.process(encode({"x": np.ones(2, np.float32)}, signature="plain"))
        assert decode(answer.data or b"")["y"].tolist() == [2.0, 2.0]
        assert model.ask("stats")["request_bytes"]["in_use"]["run"] == 0

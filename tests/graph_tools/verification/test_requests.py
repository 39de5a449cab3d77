# SPDX-License-Identifier: Apache-2.0
"""Test recorded requests in the formats of TensorFlow Serving, EAS and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import verify
from graph_tools.errors import UnreadableError, UsageError
from graph_tools.model import Signature
from graph_tools.readers import read_model
from graph_tools.verification.requests import read_requests
from helpers.hosts import contract_messages


@pytest.fixture(scope="module")
def signatures(string_model: Path) -> dict[str, Signature]:
    return read_model(string_model).signatures


def _log(signature: str = "", **inputs: Any) -> bytes:
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, value in inputs.items():
        log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    data: bytes = log.SerializeToString()
    return data


def _write(path: Path, *records: bytes, compression: str = "") -> Path:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_warm_up_files_are_read(signatures: dict[str, Signature], tmp_path: Path, compression: str) -> None:
    first = _log(item=[b"apple", "müsli".encode()], price=np.array([1.5, 2], np.float32))
    second = _log("serving_default", item=[b""], price=np.array([0], np.float32))
    from tensorflow_serving.apis import prediction_log_pb2

    other = prediction_log_pb2.PredictionLog()
    other.classify_log.request.model_spec.name = "m"
    path = _write(tmp_path / "warm", first, other.SerializeToString(), second, compression=compression)
    found = read_requests(path, signatures)
    assert [request.origin.rpartition(": ")[2] for request in found] == ["record 0", "record 2"]
    assert found[0].inputs["item"].tolist() == [b"apple", "müsli".encode()]
    np.testing.assert_array_equal(found[0].inputs["price"], np.array([1.5, 2], np.float32))


def test_a_models_own_warm_up_file_is_replayed(string_model: Path, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(string_model, tmp_path / "model"))
    (copy / "assets.extra").mkdir()
    warm = copy / "assets.extra" / "tf_serving_warmup_requests"
    _write(warm, _log(item=[b"pear"], price=np.ones(1, np.float32)))
    report = verify(copy, string_model, samples=4)
    assert report.signatures[0].recorded == 1
    assert report.passed
    _write(warm, _log(other=[b"pear"]))
    assert "input 'other'" in verify(copy, string_model, samples=4).not_compared[0]


def test_damaged_records_are_named(signatures: dict[str, Signature], tmp_path: Path) -> None:
    whole = _write(tmp_path / "whole", _log(item=[b"a"], price=np.ones(1, np.float32))).read_bytes()
    (tmp_path / "short").write_bytes(whole[:-6])
    with pytest.raises(UnreadableError, match="short: ends within record 0"):
        read_requests(tmp_path / "short", signatures)
    (tmp_path / "wrong").write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    with pytest.raises(UnreadableError, match="wrong: record 0 has a wrong checksum"):
        read_requests(tmp_path / "wrong", signatures)
    _write(tmp_path / "noise", b"\xff\xff\xff")
    with pytest.raises(UnreadableError, match=r"record 0: .*expected a PredictionLog"):
        read_requests(tmp_path / "noise", signatures)


def test_eas_requests_by_key_and_by_tensor_name(signatures: dict[str, Signature], tmp_path: Path) -> None:
    path = tmp_path / "request.bin"
    path.write_bytes(contract_messages.encode({"item": [b"plum"], "price": np.array([2], np.float32)}))
    (by_key,) = read_requests(path, signatures)
    names = {"serving_default_item:0": [b"plum"], "serving_default_price:0": np.array([2], np.float32)}
    path.write_bytes(contract_messages.encode(names, "serving_default", ["score"]))
    (by_name,) = read_requests(path, signatures)
    for request in (by_key, by_name):
        assert request.inputs["item"].tolist() == [b"plum"]
        assert request.inputs["price"].tolist() == [2.0]


def test_npz_with_labels(string_model: Path, signatures: dict[str, Signature], tmp_path: Path) -> None:
    rows = 5000
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(
        path, item=rng.choice(["apple", "müsli"], rows), price=rng.normal(size=rows), labels=rng.integers(0, 2, rows)
    )
    found = read_requests(path, signatures)
    assert [len(request.inputs["item"]) for request in found] == [4096, 904]
    assert found[0].inputs["price"].dtype == np.float32
    report = verify(string_model, string_model, requests=[path], samples=2)
    score = next(output for output in report.outputs if output.name == "score")
    assert report.rows > rows
    assert score.auc_a is not None
    assert 0.4 < score.auc_a == score.auc_b < 0.6


def test_npz_that_does_not_fit(signatures: dict[str, Signature], tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, item=["a"], prize=[1.0])
    with pytest.raises(UsageError, match=r"arrays item, prize, expected the inputs of a signature, 'serving_default'"):
        read_requests(path, signatures)
    np.savez(path, item=[1], price=[1.0])
    with pytest.raises(UsageError, match="input 'item': int64, expected strings"):
        read_requests(path, signatures)
    np.savez(path, item=np.array([b"a"], object), price=[1.0])
    with pytest.raises(UnreadableError, match=r"expected a \.npz file without Python objects"):
        read_requests(path, signatures)


def test_files_of_unknown_kinds_are_refused(signatures: dict[str, Signature], tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="does not exist, expected a file of requests"):
        read_requests(tmp_path / "none", signatures)
    for content in (b"", b"no request at all", b"\xff" * 40):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(UnreadableError, match="expected TFRecords"):
            read_requests(tmp_path / "file", signatures)


def test_requests_for_unknown_signatures_and_inputs(signatures: dict[str, Signature], tmp_path: Path) -> None:
    price = np.ones(1, np.float32)
    with pytest.raises(UsageError, match="signature 'other', expected one of serving_default"):
        read_requests(_write(tmp_path / "a", _log("other", item=[b"a"], price=price)), signatures)
    with pytest.raises(UsageError, match="input 'size' is not in signature 'serving_default'"):
        read_requests(_write(tmp_path / "b", _log(item=[b"a"], size=price)), signatures)
    with pytest.raises(UsageError, match="no input 'price'"):
        read_requests(_write(tmp_path / "c", _log(item=[b"a"])), signatures)

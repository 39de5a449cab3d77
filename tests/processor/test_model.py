# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from helpers.models import model_builders
from processor import Model

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """A copy whose address is a multiple of 64, plus `offset`."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    begin = -memory.__array_interface__["data"][0] % 64 + offset
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# Loading


def test_outputs_equal_those_of_tensorflow(tiny_model: Path, tiny: Model) -> None:
    import tensorflow as tf

    expected = tf.saved_model.load(str(tiny_model)).signatures["serving_default"](x=X)["y"].numpy()
    np.testing.assert_allclose(tiny.run({"x": X})["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fixture", ["tf1_model", "tf1_ref_model"])
def test_tf1_graph_is_loaded_and_run(fixture: str, request: pytest.FixtureRequest) -> None:
    with Model(request.getfixturevalue(fixture)) as model:
        np.testing.assert_allclose(model.run({"x": X})["y"], model_builders.linear_score(X), rtol=1e-5)
        np.testing.assert_allclose(
            model.run({"x:0": X}, outputs=["y:0"])["y:0"], model_builders.linear_score(X), rtol=1e-5
        )


def test_models_with_equal_variable_names_keep_their_values(
    make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    scales = (1.0, -2.0, 10.0)
    models = [Model(make_linear_model(tmp_path / str(scale), scale), {"session_num": 2}) for scale in scales]
    for _ in range(4):
        for model, scale in zip(models, scales, strict=True):
            np.testing.assert_allclose(model.run({"x": X})["y"], model_builders.linear_score(X, scale), rtol=1e-5)
    models[0].close()
    for model, scale in list(zip(models, scales, strict=True))[1:]:
        np.testing.assert_allclose(model.run({"x": X})["y"], model_builders.linear_score(X, scale), rtol=1e-5)
        model.close()


@pytest.mark.parametrize("as_text", [False, True])
def test_config_is_a_mapping_or_json(tiny_model: Path, as_text: bool) -> None:
    config = {"session_num": 2, "select_session_policy": "RR"}
    with Model(tiny_model, json.dumps(config) if as_text else config) as model:
        assert model.info["sessions"] == 2
        assert len(model.stats()["sessions"]) == 2


def test_path_may_be_named_by_the_config(tiny_model: Path) -> None:
    with Model(config={"savedmodel_dir": str(tiny_model)}) as model:
        assert model.run({"x": X})["y"].shape == (2, 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"session_nmu": 2}, "session_nmu"),
        ({"session_num": 0}, "session_num"),
        ({"session_num": "two"}, "session_num"),
        ({"cpusets": "99999"}, "99999"),
        ("{", "config"),
        ("[]", "config"),
        ("nul\0", "NUL"),
        ({"session_num": object()}, "config"),
        ({"session_num": float("nan")}, "config"),
    ],
)
def test_bad_config_is_named(tiny_model: Path, config: Any, message: str) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=message):
        Model(tiny_model, config)


def test_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(processor.NotFoundError, match="nowhere"):
        Model(tmp_path / "nowhere")


@pytest.mark.parametrize("damaged", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
@pytest.mark.parametrize("how", ["missing", "cut", "random"])
def test_damaged_model_is_an_error(tiny_model: Path, tmp_path: Path, damaged: str, how: str) -> None:
    copy = shutil.copytree(tiny_model, tmp_path / "model")
    file = copy / damaged
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if how == "cut" else np.random.default_rng(0).bytes(len(content)))
    if how == "random" and damaged.startswith("variables"):
        # TensorFlow compares a checksum.
        expected: tuple[type[Exception], ...] = (processor.DataLossError, processor.InternalError)
    else:
        expected = (
            processor.NotFoundError,
            processor.DataLossError,
            processor.InternalError,
            processor.OutOfRangeError,
        )
    with pytest.raises(expected):
        Model(copy)


# Signatures, info, statistics


def test_signatures_say_names_types_and_shapes(strings: Model) -> None:
    signature = strings.signatures["serving_default"]
    assert signature.name == "serving_default"
    assert signature.method_name == "tensorflow/serving/predict"
    assert {name: (spec.type, spec.shape) for name, spec in signature.inputs.items()} == {
        "item": ("DT_STRING", (-1,)),
        "price": ("DT_FLOAT", (-1,)),
    }
    assert {name: spec.dtype for name, spec in signature.outputs.items()} == {
        "id": np.dtype("i8"),
        "label": np.dtype(object),
        "score": np.dtype("f4"),
    }
    assert signature.inputs["item"].tensor == "serving_default_item:0"


def test_signature_of_open_rank_has_no_shape(echo: Model) -> None:
    assert echo.signatures["DT_BFLOAT16"].inputs["x"].shape is None
    assert str(echo.signatures["DT_BFLOAT16"].inputs["x"].dtype) == "bfloat16"


def test_info_describes_the_loaded_model(tiny: Model, tiny_model: Path) -> None:
    info = tiny.info
    assert Path(info["path"]) == tiny_model
    assert info["state"] == "ready"
    assert {"sessions", "executor", "execution", "warmup", "load_ms"} <= set(info)


def test_stats_count_requests(tiny_model: Path) -> None:
    with Model(tiny_model) as model:
        before = model.stats()["requests"]
        for _ in range(5):
            model.run({"x": X})
        with pytest.raises(processor.InvalidArgumentError):
            model.run({"x": X[:, :2]})
        stats = model.stats()
        assert stats["requests"] - before == 6
        assert stats["responses"]["INVALID_ARGUMENT"] == 1
        assert stats["in_flight"] == 0
        assert stats["latency_us"]["p99"] >= stats["latency_us"]["p50"] > 0


# Running


def test_several_signatures(multi: Model) -> None:
    np.testing.assert_array_equal(multi.run({"x": [[1, 2]]})["twice"], [[2, 4]])
    total = multi.run({"a": [5, 6], "b": [1, 2]}, signature="total")
    assert {name: array.tolist() for name, array in total.items()} == {"sum": [6, 8], "difference": [4, 4]}
    assert multi.run({"text": ["äb", b"\0\0\0"]}, signature="length")["bytes"].tolist() == [3, 3]


def test_outputs_are_returned_in_the_requested_order(multi: Model) -> None:
    inputs = {"a": [5], "b": [1]}
    assert list(multi.run(inputs, "total", outputs=["sum", "difference"])) == ["sum", "difference"]
    assert list(multi.run(inputs, "total", outputs=["difference", "sum"])) == ["difference", "sum"]
    assert list(multi.run(inputs, "total", outputs=["sum"])) == ["sum"]
    assert set(multi.run(inputs, "total", outputs=[])) == {"sum", "difference"}


@pytest.mark.parametrize("form", [list, lambda v: np.array(v, object), np.array, lambda v: [s.decode() for s in v]])
def test_strings_and_table_from_an_asset(strings: Model, form: Callable[[list[bytes]], Any]) -> None:
    items = [b"pear", "müsli".encode(), b"nothing", b""]
    out = strings.run({"item": form(items), "price": [0.5, 0.5, 0.5, 0.5]})
    assert out["id"].tolist() == [1, 3, 4, 4]
    assert out["score"].tolist() == [10.5, 30.5, 40.5, 40.5]
    assert out["label"].dtype == object
    assert out["label"].tolist() == [b"pear!", "müsli!".encode(), b"nothing!", b"!"]


def test_fixed_width_strings_lose_zero_bytes_at_the_end_only(strings: Model) -> None:
    items = np.array([b"a\0b", b"ab\0"])
    assert strings.run({"item": items, "price": [0, 0]})["label"].tolist() == [b"a\0b!", b"ab!"]
    assert strings.run({"item": [b"ab\0", b"\0"], "price": [0, 0]})["label"].tolist() == [b"ab\0!", b"\0!"]


def test_string_of_a_megabyte(strings: Model) -> None:
    item = b"x" * 2**20
    assert strings.run({"item": [item], "price": [0]})["label"].tolist() == [item + b"!"]


def sample(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(1)
    if dtype.kind == "O":
        array = np.empty(shape, object)
        array.reshape(-1)[:] = [rng.bytes(i % 5) for i in range(array.size)]
        return array
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return (rng.standard_normal(shape) * (1 + 1j if dtype.kind == "c" else 1)).astype(dtype)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 0, 3), (3, 5), (2, 1, 3, 2)], ids=str)
@pytest.mark.parametrize("name", model_builders.DTYPES)
def test_every_dtype_and_shape_round_trips(echo: Model, name: str, shape: tuple[int, ...]) -> None:
    array = sample(echo.signatures[name].inputs["x"].dtype, shape)
    for form in (array, aligned(array), aligned(array, 8)) if array.dtype != object else (array,):
        back = echo.run({"x": form}, signature=name)["y"]
        assert back.dtype == array.dtype
        assert back.shape == shape
        assert back.tolist() == array.tolist()


def test_output_does_not_share_memory_with_a_borrowed_input(echo: Model) -> None:
    # The graph returns its input, whose memory is only borrowed for the call.
    x = aligned(np.ones(1000, np.float32))
    y = echo.run({"x": x})["y"]
    x[:] = 7
    assert y.tolist() == [1.0] * 1000


def test_outputs_are_read_only_views_that_outlive_the_model(tiny_model: Path) -> None:
    with Model(tiny_model) as model:
        outputs = [model.run({"x": X * i})["y"] for i in range(50)]
        assert not outputs[0].flags.writeable
        assert not outputs[0].flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            outputs[0][0] = 1
        rows = outputs[3][1:]
    del model
    gc.collect()
    for i, output in enumerate(outputs):
        np.testing.assert_allclose(output, model_builders.linear_score(X * i), rtol=1e-5)
    del outputs
    gc.collect()
    np.testing.assert_allclose(rows, model_builders.linear_score(X * 3)[1:], rtol=1e-5)


def test_results_are_freed_with_their_last_view(tiny: Model) -> None:
    rows = np.ones((250_000, 3), np.float32)  # an output of 1 MB

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(20):
        tiny.run({"x": rows})
    before = resident()
    for _ in range(300):
        tiny.run({"x": rows})
    assert resident() - before < 100e6


def test_array_likes_are_accepted(tiny: Model) -> None:
    import tensorflow as tf

    expected = model_builders.linear_score(X)
    for value in (X.tolist(), tuple(map(tuple, X.tolist())), tf.constant(X), memoryview(X), np.asfortranarray(X)):
        np.testing.assert_allclose(tiny.run({"x": value})["y"], expected, rtol=1e-5)


def test_empty_batch(tiny: Model) -> None:
    assert tiny.run({"x": np.empty((0, 3), "f4")})["y"].shape == (0, 1)


# Bad requests


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "x"),
        ({"x": X, "z": X}, "z"),
        ({"z": X}, "z"),
        ({"x": X.astype("f8")}, r"'x'.*float64.*float32"),
        ({"x": np.zeros((2, 3), "i8")}, r"'x'.*int64.*float32"),
        ({"x": X[:, :2]}, "x"),
        ({"x": X[0]}, "x"),
        ({"x": np.float32(1)}, "x"),
        ({"x": [[1, 2, 3], [4]]}, "x"),
        ({"x": ["a"]}, "x"),
        ({"x": None}, "x"),
        ([("x", X)], "mapping"),
        (None, "mapping"),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_bad_inputs_are_reported_and_the_model_stays_usable(tiny: Model, inputs: Any, message: str) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=message):
        tiny.run(inputs)
    assert tiny.run({"x": X})["y"].shape == (2, 1)


def test_unknown_names_are_not_found(tiny: Model) -> None:
    with pytest.raises(processor.NotFoundError, match="nothing"):
        tiny.run({"x": X}, signature="nothing")
    with pytest.raises(processor.NotFoundError, match="nothing"):
        tiny.run({"x": X}, outputs=["nothing"])


@pytest.mark.parametrize("outputs", ["y", [None], [3], ["a\0b"]])
def test_output_names_that_are_not_strings_are_refused(tiny: Model, outputs: Any) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="output"):
        tiny.run({"x": X}, outputs=outputs)


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 1.5, "high", None])
def test_priority_out_of_range_is_refused(tiny: Model, priority: Any) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="priority"):
        tiny.run({"x": X}, priority=priority)


def test_deadline_is_on_the_monotonic_clock(tiny: Model) -> None:
    assert tiny.run({"x": X}, deadline=time.monotonic() + 60)["y"].shape == (2, 1)
    assert tiny.run({"x": X}, deadline=float("inf"))["y"].shape == (2, 1)
    for late in (time.monotonic() - 1, 0, -5.0, float("-inf")):
        with pytest.raises(processor.DeadlineExceededError):
            tiny.run({"x": X}, deadline=late)


@pytest.mark.parametrize("deadline", [float("nan"), "soon"])
def test_invalid_deadline_is_refused(tiny: Model, deadline: Any) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="deadline"):
        tiny.run({"x": X}, deadline=deadline)


# Life


def test_set_cpuset_moves_a_live_model(tiny_model: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    with Model(tiny_model, {"session_num": 2, "execution": "pinned"}) as model:
        model.set_cpuset(f"{cpu};{cpu}")
        assert model.run({"x": X})["y"].shape == (2, 1)
        model.set_cpuset("")
        assert model.run({"x": X})["y"].shape == (2, 1)
        for bad in ("nonsense", f"{cpu}", f"{cpu};99999", "0;\0"):
            with pytest.raises(processor.InvalidArgumentError):
                model.set_cpuset(bad)


def test_drained_model_is_unavailable(tiny_model: Path) -> None:
    with Model(tiny_model) as model:
        model.drain(deadline=time.monotonic() + 30)
        with pytest.raises(processor.UnavailableError):
            model.run({"x": X})


def test_use_after_close_is_a_failed_precondition(tiny_model: Path) -> None:
    model = Model(tiny_model)
    assert not model.closed
    model.close()
    model.close()
    assert model.closed
    assert "closed" in repr(model)
    uses: list[Callable[[], object]] = [
        lambda: model.run({"x": X}),
        lambda: model.process(b""),
        lambda: model.process_many([b""]),
        lambda: model.info,
        lambda: model.signatures,
        lambda: model.stats(),
        lambda: model.set_cpuset(""),
        lambda: model.drain(),
        lambda: model.__enter__(),
    ]
    for use in uses:
        with pytest.raises(processor.FailedPreconditionError, match="closed"):
            use()


def test_garbage_collected_model_is_closed_with_a_warning(tiny_model: Path) -> None:
    model = Model(tiny_model)
    forgotten = [model]
    del model
    with pytest.warns(ResourceWarning, match="not closed"):
        forgotten.clear()


@pytest.mark.parametrize(
    "last",
    [
        "",
        "out = model.run({'x': np.ones((1, 3), 'f4')})",
        "class Keep: pass\nKeep.model = model; sys.modules['keep'] = Keep",
        "thread = threading.Thread(target=work, daemon=True); thread.start(); time.sleep(0.2)",
        "raise SystemExit(0)",
    ],
)
def test_interpreter_exits_cleanly_with_an_open_model(tiny_model: Path, last: str) -> None:
    code = f"""
import sys, threading, time, numpy as np, processor
model = processor.Model({str(tiny_model)!r})
def work():
    while True:
        model.run({{"x": np.ones((1, 3), "f4")}})
{last}
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(Path(processor.__file__).parent.parent)},
    )
    assert run.returncode == 0, run.stderr

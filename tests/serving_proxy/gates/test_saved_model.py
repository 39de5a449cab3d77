# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.proxies.proxy_runs import write_model
from serving_proxy import messages
from serving_proxy.errors import InvalidError, NotFoundError
from serving_proxy.gates.saved_model import differences, read_signatures

OLD: dict[str, Any] = {
    "serving_default": {
        "inputs": {"user": {"dtype": "string", "shape": [-1, 1]}, "x": {"dtype": "float32", "shape": [-1, 3]}},
        "outputs": {"y": {"dtype": "float32", "shape": None}},
    }
}


def test_signatures_of_a_real_model(string_model: Path) -> None:
    found = read_signatures(string_model)["serving_default"]
    assert found["inputs"] == {"item": {"dtype": "string", "shape": [-1]}, "price": {"dtype": "float32", "shape": [-1]}}
    assert {name: output["dtype"] for name, output in found["outputs"].items()} == {
        "id": "int64",
        "label": "string",
        "score": "float32",
    }


def test_several_signatures_of_real_models(multi_signature_model: Path, tf1_model: Path) -> None:
    assert list(read_signatures(multi_signature_model)) == ["length", "serving_default", "total"]
    assert list(read_signatures(tf1_model)) == ["serving_default"]


def test_every_dtype_of_a_real_model(echo_model: Path) -> None:
    for name, signature in read_signatures(echo_model).items():
        (tensor,) = signature["inputs"].values()
        assert not tensor["dtype"].startswith("dtype"), name
        assert tensor["shape"] is None


def test_text_models_are_read(tmp_path: Path) -> None:
    text = """saved_model_schema_version: 1 meta_graphs { graph_def { node { name: "x" op: "Placeholder" } }
      meta_info_def { tags: "serve" } signature_def { key: "s" value {
        outputs { key: "y" value { dtype: DT_FLOAT } } outputs { key: "z" value { dtype: 1 } } } } }"""
    (tmp_path / "saved_model.pbtxt").write_text(text, encoding="utf-8")
    outputs = read_signatures(tmp_path)["s"]["outputs"]
    assert {name: tensor["dtype"] for name, tensor in outputs.items()} == {"y": "float32", "z": "float32"}


def test_a_missing_graph_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no saved_model.pb, expected the folder of a SavedModel"):
        read_signatures(tmp_path)


@pytest.mark.parametrize("data", [b"\xff\xff", b"not a graph at all", b"\x12\x7f"])
def test_a_damaged_graph_is_reported(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "saved_model.pb").write_bytes(data)
    with pytest.raises(InvalidError, match="a graph that does not parse, expected a SavedModel"):
        read_signatures(tmp_path)


def test_graphs_that_serve_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(InvalidError, match="0 graphs, expected one"):
        read_signatures(tmp_path)
    message = messages.new("tensorflow.SavedModel")
    message.meta_graphs.add().signature_def["__saved_model_init_op"].outputs["x"].dtype = 1
    (tmp_path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(InvalidError, match="no signature with outputs"):
        read_signatures(tmp_path)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "saved_model.pb").write_bytes(data)
    try:
        read_signatures(folder)
    except InvalidError:
        return


def test_equal_signatures_do_not_differ(tmp_path: Path) -> None:
    assert differences(OLD, copy.deepcopy(OLD)) == []
    signatures = read_signatures(write_model(tmp_path / "1"))
    assert differences(signatures, read_signatures(write_model(tmp_path / "2"))) == []


def changed(path: str, value: object) -> dict[str, Any]:
    """Change a place in the signatures, or remove it with None."""
    made = copy.deepcopy(OLD)
    *names, last = path.split("/")
    place: Any = made
    for name in names:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("serving_default", None, "signature 'serving_default' is missing"),
        ("serving_default/inputs/x", None, "input of 'serving_default': 'x' is missing"),
        ("serving_default/outputs/y", None, "output of 'serving_default': 'y' is missing"),
        (
            "serving_default/inputs/z",
            {"dtype": "int64", "shape": [-1]},
            "input of 'serving_default': 'z' is there in addition",
        ),
        (
            "serving_default/inputs/x/dtype",
            "float64",
            "input of 'serving_default': 'x' is float64 instead of float32",
        ),
        (
            "serving_default/inputs/x/shape",
            [-1, 4],
            "input of 'serving_default': 'x' has shape [-1, 4] instead of [-1, 3]",
        ),
        ("serving_default/inputs/x/shape", [-1], "input of 'serving_default': 'x' has shape [-1] instead of [-1, 3]"),
    ],
)
def test_differences_are_named(path: str, value: object, said: str) -> None:
    assert differences(OLD, changed(path, value)) == [said]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("serving_default/inputs/x/shape", [8, 3]),
        ("serving_default/inputs/x/shape", None),
        ("serving_default/outputs/y/shape", [-1, 1]),
        ("more", {"inputs": {}, "outputs": {}}),
    ],
)
def test_compatible_signatures_do_not_differ(path: str, value: object) -> None:
    made = changed(path, value if value is not None else [])
    if value is None:
        made["serving_default"]["inputs"]["x"]["shape"] = None
    assert differences(OLD, made) == []


def test_a_graph_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pbtxt").write_bytes(b"meta_graphs { \xff }")
    with pytest.raises(InvalidError, match="a graph that does not parse"):
        read_signatures(tmp_path)

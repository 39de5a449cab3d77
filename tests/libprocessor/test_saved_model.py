# SPDX-License-Identifier: Apache-2.0
"""Model folders that are damaged, not whole, or not of stock TensorFlow: refused by name, and nothing else suffers."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import DropInModel, drop_in_config, load, refusal
from helpers.models import model_builders, special_models
from helpers.system.programs import run_python

X = np.array([[1, 2, 3]], np.float32)


@pytest.fixture(autouse=True)
def bystander(serving: DropInModel) -> Iterator[None]:
    """A model beside the damaged one, which must go on serving."""
    yield
    answer = serving.process(encode({"x": X}))
    np.testing.assert_allclose(decode(answer.data or b"")["y"], model_builders.linear_score(X))


@pytest.fixture(scope="module")
def serving(tiny_model: Path) -> Iterator[DropInModel]:
    with DropInModel(tiny_model) as model:
        yield model


@pytest.fixture
def copy(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def refused(path: Path, code: str, *words: str) -> None:
    """Check that both ABIs refuse a model, soon, with the same reason."""
    began = time.monotonic()
    reason = refusal(drop_in_config(path))
    assert reason.startswith(f"initialize failed: {code}: "), reason
    for word in words:
        assert word in reason
    assert load(path)[0] == code
    assert time.monotonic() - began < 20


def only(folder: Path, pattern: str) -> Path:
    (file,) = folder.glob(pattern)
    return file


# Files


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none", "NOT_FOUND", f"savedmodel_dir '{tmp_path / 'none'}': no such folder")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "NOT_FOUND", f"savedmodel_dir '{tmp_path / 'file'}': no such folder")


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "NOT_FOUND", f"savedmodel_dir '{tmp_path}': holds no saved_model.pb")


def test_a_configuration_without_a_folder_is_refused() -> None:
    assert "savedmodel_dir: empty" in refusal(drop_in_config(""))
    assert load(None)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"\xff" * 1000, lambda data: data[: len(data) // 2], lambda data: b"not a model", lambda data: b""],
    ids=["bytes", "truncated", "text", "empty"],
)
def test_corrupt_saved_model_is_refused(damage: Callable[[bytes], bytes], copy: Path) -> None:
    file = copy / "saved_model.pb"
    file.write_bytes(damage(file.read_bytes()))
    reason = refusal(drop_in_config(copy))
    assert f"savedmodel_dir '{copy}': " in reason
    assert load(copy)[0] != "OK"


def test_missing_shard_of_variables_is_refused(copy: Path) -> None:
    file = only(copy / "variables", "variables.data-*")
    file.unlink()
    assert f"variables '{copy / 'variables' / 'variables'}': " in refusal(drop_in_config(copy))
    assert file.name in refusal(drop_in_config(copy))


def test_missing_index_of_variables_is_refused(copy: Path) -> None:
    file = copy / "variables" / "variables.index"
    file.unlink()
    refused(copy, "NOT_FOUND", f"variables '{file}': missing")


@pytest.mark.parametrize("pattern", ["variables.data-*", "variables.index"])
@pytest.mark.parametrize("how", ["truncated", "changed", "empty"])
def test_damaged_variables_are_refused(pattern: str, how: str, copy: Path) -> None:
    file = only(copy / "variables", pattern)
    data = bytearray(file.read_bytes())
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    else:
        data[1] ^= 0xFF
    file.write_bytes(data)
    assert f"variables '{copy / 'variables' / 'variables'}': " in refusal(drop_in_config(copy))


def test_missing_asset_is_refused(string_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(string_model, tmp_path / "model"))
    file = only(copy / "assets", "*")
    file.unlink()
    refused(copy, "NOT_FOUND", f"asset '{file}': missing")


def test_changed_asset_is_refused(string_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(string_model, tmp_path / "model"))
    only(copy / "assets", "*").write_text("twice\ntwice\n")  # a key cannot have two ids
    assert "twice" in refusal(drop_in_config(copy))


def test_checkpoint_of_another_model_is_refused(tiny_model: Path, string_model: Path, tmp_path: Path) -> None:
    for file in (string_model / "variables").iterdir():
        shutil.copy(file, tmp_path / file.name.replace("variables.", "model.ckpt-3."))
    (tmp_path / "checkpoint").touch()
    reason = refusal(drop_in_config(tiny_model, checkpoint_dir=str(tmp_path)))
    assert f"variables '{tmp_path / 'model.ckpt-3'}': " in reason


def test_model_without_a_serving_graph_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    def retag(meta_graph: Any) -> None:
        meta_graph.meta_info_def.tags[:] = ["train"]

    path = special_models.edit_model(tiny_model, tmp_path / "model", retag)
    refused(path, "NOT_FOUND", f"savedmodel_dir '{path}': ", "serve")


# Ops


@pytest.mark.parametrize("where", ["graph", "function"])
def test_embedding_variables_need_graph_tools_cut(where: str, tiny_model: Path, tmp_path: Path) -> None:
    def add(meta_graph: Any) -> None:
        graph = meta_graph.graph_def
        special_models.add_embedding_variable(graph.node if where == "graph" else graph.library.function[0].node_def)

    path = special_models.edit_model(tiny_model, tmp_path / "model", add)
    refused(path, "UNIMPLEMENTED", "KvResourceGather, KvVarHandleOp", "run `graph-tools cut`")


def test_custom_ops_are_named(tiny_model: Path, tmp_path: Path) -> None:
    def add(meta_graph: Any) -> None:
        meta_graph.graph_def.node.add(name="mine", op="FancyLookup")

    refused(special_models.edit_model(tiny_model, tmp_path / "model", add), "UNIMPLEMENTED", "FancyLookup")


GRAPH_EDITS: dict[str, tuple[bool, Callable[[Any], object]]] = {
    # Name -> must it be refused, or does TensorFlow never look there?
    "unknown input": (True, lambda graph: graph.node[0].input.append("nowhere")),
    "name twice": (True, lambda graph: graph.node.add(name=graph.node[0].name, op="NoOp")),
    "bad name": (True, lambda graph: graph.node.add(name="a b/\n", op="NoOp")),
    "cycle": (True, lambda graph: graph.node.add(name="loop", op="Identity", input=["loop"])),
    "attribute missing": (True, lambda graph: graph.node.add(name="p", op="Placeholder")),
    "functions missing": (True, lambda graph: graph.ClearField("library")),
    "function": (False, lambda graph: graph.library.function[0].node_def.add(op="Identity", input=["nowhere:x:0"])),
    "function without result": (False, lambda graph: graph.library.function[0].ret.clear()),
}


def test_malformed_graphs_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    paths = {
        name: special_models.edit_model(tiny_model, tmp_path / name, lambda meta, edit=edit: edit(meta.graph_def))
        for name, (_, edit) in GRAPH_EDITS.items()
    }
    # In a process of its own, whose end would be seen.
    printed = run_python(
        """
        import json, sys
        from helpers.hosts import deeprec_abi
        outcomes = []
        for path in sys.argv[1:]:
            with deeprec_abi.captured_log(deeprec_abi.ERROR) as log:
                handle, state = deeprec_abi.initialize(deeprec_abi.drop_in_config(path))
            outcomes.append([handle is not None, state, [line.text for line in log]])
            deeprec_abi.library().processor_model_free(handle)
        print(json.dumps(outcomes))
        """,
        *paths.values(),
    )
    for name, (loaded, state, log) in zip(paths, json.loads(printed), strict=True):
        assert (loaded, state, len(log)) in ((False, -1, 1), (True, 0, 0)), name
        assert not (loaded and GRAPH_EDITS[name][0]), name

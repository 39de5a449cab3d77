# SPDX-License-Identifier: Apache-2.0
"""Test that damaged input and wrong use give one clear line and the right exit code, and that nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.graph_tools import cut_models
from helpers.graph_tools.cut_models import KEYS, build_sparse, contents, rows, run
from helpers.models import special_models
from load_tests.workloads.sparse_exports import Export, deeprec_lookup, deeprec_table

NAN, HUGE = rows(), rows()
NAN[5, 2], HUGE[5, 2] = np.nan, 1e38


def refused(source: Path, *arguments: object, code: int = 2, place: Path | None = None) -> str:
    """Cut, check that it failed as it should, and return the message."""
    out = place or source.parent / "out"
    before = contents(source.parent)
    found = run("cut", source, out, *arguments)
    assert found.code == code, found.err
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in line
    assert ", expected " in line
    assert contents(source.parent) == before
    return line.removeprefix("error: ")


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def _cut_off(path: Path, left: int) -> None:
    path.write_bytes(path.read_bytes()[:left])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda at: (at / "variables/variables.data-00000-of-00001").unlink(), r"variables.data-00000-of-00001"),
        (lambda at: _cut_off(at / "variables/variables.data-00000-of-00001", 8), r"variables.data-00000-of-00001"),
        (lambda at: _cut_off(at / "variables/variables.index", 40), r"variables.index"),
        (lambda at: _cut_off(at / "variables/variables.index", 0), r"variables.index"),
        (lambda at: (at / "variables/variables.index").unlink(), r"variables.index: does not exist, expected the"),
        (lambda at: (at / "saved_model.pb").write_bytes(b"\xff" * 99), r"saved_model.pb: .*, expected a SavedModel"),
        (lambda at: (at / "saved_model.pb").write_bytes(b""), r"no MetaGraph, expected at least one"),
        (lambda at: _cut_off(at / "saved_model.pb", 999), r"saved_model.pb: .*, expected a SavedModel message"),
        (lambda at: (at / "saved_model.pb").unlink(), r"no saved_model.pb in it, expected the folder of a SavedModel"),
        (lambda at: [shutil.rmtree(at), at.mkdir()], r"no saved_model.pb in it, expected the folder of a SavedModel"),
        (lambda at: shutil.rmtree(at), r"model: does not exist, expected a SavedModel"),
    ],
    ids=[
        "no shard", "short shard", "short index", "empty index", "no index", "corrupt message", "empty message",
        "short message", "no message", "empty folder", "nothing",
    ],
)  # fmt: skip
def test_damaged_files(model: Path, damage: Callable[[Path], Any], message: str) -> None:
    import re

    damage(model)
    found = refused(model)
    assert found.startswith(str(model))
    assert re.search(message, found), found


def test_flipped_byte_of_a_shard(model: Path) -> None:
    shard = model / "variables/variables.data-00000-of-00001"
    data = bytearray(shard.read_bytes())
    data[2] ^= 1
    shard.write_bytes(data)
    assert "checksum" in refused(model)


@pytest.mark.parametrize(
    ("export", "words"),
    [
        ({"change": {"emb-keys": KEYS[:-1]}}, ["39 keys and 'emb-values' 40 rows", "'emb-keys'"]),
        ({"change": {"emb-values": None}}, ["no tensor 'emb-values'"]),
        ({"change": {"emb/Adagrad-keys": KEYS + 1}}, ["slot 'emb/Adagrad' has other keys than table 'emb'"]),
        ({"change": {"emb-values": NAN}}, ["emb", "nan in column 2", "expected finite values"]),
        ({"change": {"emb-values": HUGE}}, ["emb", "e+37 in column 2", "expected finite values below 1e+30"]),
        ({"change": {"emb-partition_offset": np.full(1001, -1, np.int32)}}, ["emb-partition_offset", "-1 at 0"]),
        ({"keys": np.where(KEYS == 390, 380, KEYS), "slots": []}, ["emb", "key 380 more than once"]),
    ],
    ids=["lengths", "no values", "slot", "nan", "huge", "offsets", "duplicate key"],
)  # fmt: skip
def test_tables_that_contradict_themselves(tmp_path: Path, export: dict[str, Any], words: list[str]) -> None:
    message = refused(build_sparse(tmp_path / "model", **export))
    assert message.startswith(str(tmp_path / "model"))
    for word in words:
        assert word in message


def test_unknown_op(tmp_path: Path) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, rows())
    found = deeprec_lookup(export, handle, export.input("item"))
    mystery = export.node("Nobody>Knows", [found], "mystery", T="float32")
    source = export.finish(tmp_path / "model", [mystery], cut_models.DIM)
    message = refused(source, code=1)
    assert message.startswith(f"{source}: 1 unknown op: Nobody>Knows (node 'mystery', needed by output 'rows'")


def test_output_that_is_in_no_graph(model: Path) -> None:
    def rename(meta_graph: Any) -> None:
        meta_graph.signature_def["serving_default"].outputs["y"].name = "nowhere:0"

    source = special_models.edit_model(model, model.parent / "edited", rename)
    message = refused(source, place=model.parent / "out")
    assert "signature 'serving_default': 'y' is the tensor 'nowhere:0', expected one of the graph" in message


def test_function_that_calls_itself(model: Path) -> None:
    def loop(meta_graph: Any) -> None:
        call = next(node for node in meta_graph.graph_def.node if node.op == "StatefulPartitionedCall")
        name = call.attr["f"].func.name
        (function,) = [
            definition for definition in meta_graph.graph_def.library.function if definition.signature.name == name
        ]
        inner = function.node_def.add(name="again", op="StatefulPartitionedCall")
        inner.attr["f"].func.name = name
        inner.input.extend(argument.name for argument in function.signature.input_arg)
        for key in ("Tin", "Tout"):
            inner.attr[key].CopyFrom(call.attr[key])

    source = special_models.edit_model(model, model.parent / "edited", loop)
    message = refused(source, place=model.parent / "out")
    assert message.startswith(f"{source}: function '")
    assert "calls itself" in message


def test_options_that_name_nothing_are_refused(model: Path) -> None:
    assert "no signature 'other', expected one of: serving_default" in refused(model, "--signature", "other")
    assert "output 'other' is in no signature" in refused(model, "--outputs", "other")
    assert "no table of this name" in refused(model, "--tensor-type", "other=int8")
    assert "no table of this name" in refused(model, "--absent-key", "other=zero")
    message = refused(model, "--checkpoint", model.parent / "nowhere")
    assert message.startswith(f"{model.parent}/nowhere.index: not found, expected the index")
    assert "nowhere.npz: does not exist" in refused(model, "--requests", model.parent / "nowhere.npz")


def test_files_that_are_not_requests_are_refused(model: Path) -> None:
    (model.parent / "notes.npz").write_text("no archive")
    assert "notes.npz" in refused(model, "--requests", model.parent / "notes.npz")
    np.savez(model.parent / "other.npz", other=np.zeros(3))
    assert "other" in refused(model, "--requests", model.parent / "other.npz")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--embedding-dtype", "int2"], ["--embedding-dtype", "'int2'", "fp32, bf16, fp16, int8, int4"]),
        (["--tensor-type", "emb=float"], ["--tensor-type emb: 'float'"]),
        (["--tensor-type", "emb"], ["--tensor-type: 'emb', expected NAME=VALUE"]),
        (["--tensor-type", "emb=int8", "--tensor-type", "emb=int4"], ["given twice"]),
        (["--absent-key", "emb=none"], ["--absent-key emb: 'none'", "zero, row:K or default"]),
        (["--tolerance", "small"], ["tolerance: 'small'", "1e-5,1e-5"]),
        (["--tolerance", "-1"], ["tolerance: '-1'"]),
        (["--memory-limit", "inf"], ["--memory-limit: inf"]),
        (["--memory-limit", "nan"], ["--memory-limit: nan"]),
        (["--memory-limit", "0"], ["--memory-limit: 0.0, expected at least 0.1 GB"]),
        (["--min-frequency", "-1"], ["--min-frequency: -1, expected at least 0"]),
        (["--min-norm", "nan"], ["--min-norm: nan"]),
        (["--min-norm", "inf"], ["--min-norm: inf, expected at least 0.0 and finite"]),
    ],
)
def test_wrong_values(model: Path, arguments: list[str], words: list[str]) -> None:
    message = refused(model, *arguments)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "arguments",
    [["--samples", "-1"], ["--min-frequency", "few"], ["--nothing"], ["one", "more"]],
)
def test_wrong_use_is_explained(model: Path, arguments: list[str]) -> None:
    before = contents(model.parent)
    found = run("cut", model, model.parent / "out", *arguments)
    assert found.code == 2
    assert "Usage: graph-tools cut" in found.err
    assert "Traceback" not in found.err
    assert contents(model.parent) == before


def test_targets_that_cannot_be_written_are_refused(model: Path) -> None:
    assert "already exists" in refused(model, place=model)
    assert "is inside the source" in refused(model, place=model / "out")
    (model.parent / "file").write_text("")
    assert "file is a file, expected a folder" in refused(model, place=model.parent / "file" / "out")
    assert "/proc/nowhere" in refused(model, place=Path("/proc/nowhere/out"))
    found = run("cut", model)
    assert (found.code, found.out) == (2, "")
    assert "OUT: none given, expected a folder to write" in found.err


def test_report_that_cannot_be_written(model: Path) -> None:
    (model.parent / "file").write_text("")
    assert "a folder, expected a file" in refused(model, "--report", model.parent)
    assert "file is a file, expected a folder" in refused(model, "--report", model.parent / "file" / "r.json")


def test_a_cut_without_answered_requests_fails(model: Path) -> None:
    assert "none of 0 requests was answered" in refused(model, "--samples", 0, code=1)


@pytest.mark.parametrize("verb", ["inspect", "diff", "verify"])
def test_other_verbs_report_damaged_models_as_well(model: Path, verb: str) -> None:
    models = [model] if verb == "inspect" else [model, model]
    (model / "variables/variables.data-00000-of-00001").unlink()
    (model / "saved_model.pb").write_bytes(b"\xff" * 99)
    found = run(verb, *models)
    assert (found.code, found.out) == (2, "")
    (line,) = found.err.splitlines()
    assert line.startswith(f"error: {model}/saved_model.pb: ")


def test_a_folder_of_versions_names_the_newest(model: Path) -> None:
    folder = model.parent / "versions"
    for version in ("1", "10", "9", "tmp"):
        shutil.copytree(model, folder / version)
    found = run("cut", folder, model.parent / "out")
    assert found.code == 2
    assert f"{folder}: no saved_model.pb in it" in found.err
    assert f"file: {folder}/10 is a SavedModel, the newest of 3 versions" in found.err

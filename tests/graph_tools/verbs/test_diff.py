# SPDX-License-Identifier: Apache-2.0
"""Test the diff of models that differ in one part."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from graph_tools import diff
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.verbs.diff import Change
from graph_tools.writer import write_saved_model
from helpers.models import verify_models


def test_diff_of_a_model_with_itself_is_empty(string_model: Path) -> None:
    report = diff(string_model, string_model)
    assert report.equal
    assert report.same_interface
    assert report.a == report.b


def test_a_difference_in_content_alone_is_reported(tmp_path: Path) -> None:
    rows = np.ones((6, 2), np.float32)
    a = verify_models.build_lookup(tmp_path / "a", rows=rows)
    b = verify_models.build_lookup(tmp_path / "b", rows=rows * 2)
    report = diff(a, b)
    assert not report.equal
    assert report.same_interface
    (change,) = report.variables
    assert change.name == "rows"
    assert change.a is not None
    assert change.b is not None
    assert change.a.partition(", checksum")[0] == change.b.partition(", checksum")[0] == "float32 [6, 2], 48 bytes"


def test_shapes_that_changed(tmp_path: Path) -> None:
    a = verify_models.build_lookup(tmp_path / "a")
    b = verify_models.build_lookup(tmp_path / "b", words=verify_models.WORDS[:-1])
    assert diff(a, b).variables == [Change("rows", "float32 [6, 2], 48 bytes", "float32 [5, 2], 40 bytes")]


def test_signatures_and_their_ends(tiny_model: Path, string_model: Path, multi_signature_model: Path) -> None:
    report = diff(tiny_model, string_model)
    assert not report.same_interface
    assert Change("serving_default/input/x", "float32 [?, 3]", None) in report.signatures
    assert Change("serving_default/output/label", None, "string [?]") in report.signatures
    several = diff(tiny_model, multi_signature_model)
    assert Change("total", None, "2 inputs, 2 outputs") in several.signatures
    assert Change("serving_default/input/x", "float32 [?, 3]", "float32 [?, 2]") in several.signatures


def test_ops_and_bytes_of_what_was_written(tiny_model: Path, tmp_path: Path) -> None:
    model = read_model(tiny_model)
    PruneUnreachable().apply(model)
    write_saved_model(model, tmp_path / "b")
    report = diff(tiny_model, tmp_path / "b")
    assert report.same_interface
    assert report.variables == []
    (calls,) = (op for op in report.ops if op.op == "StatefulPartitionedCall")
    assert calls.a > calls.b == 0
    assert report.b.functions == 0
    assert report.a.bytes != report.b.bytes


def test_assets_that_changed(string_model: Path, tmp_path: Path) -> None:
    b = Path(shutil.copytree(string_model, tmp_path / "b"))
    (vocabulary,) = (b / "assets").iterdir()
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"pear", b"peas"))
    (change,) = diff(string_model, b).assets
    assert change.a is not None
    assert change.b is not None
    assert change.a != change.b
    assert change.a.startswith("23 bytes")
    assert change.b.startswith("23 bytes")

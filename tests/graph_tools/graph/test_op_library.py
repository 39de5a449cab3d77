# SPDX-License-Identifier: Apache-2.0
"""The search for libprocessor, and the errors if it is missing, too old, or not a library of ops."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from graph_tools import inspect, verify
from graph_tools.errors import UnreadableError, UsageError
from graph_tools.graph import op_library
from graph_tools.graph.op_library import VARIABLE, find_library, is_ours, load_library
from graph_tools.readers import read_model
from graph_tools.writer import write_saved_model
from helpers.graph_tools import fused_tower


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded no library yet, as far as the module knows."""
    monkeypatch.setattr(op_library, "_loaded", None)


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"none")
    return path


def _package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `processor` be found in a folder."""
    _file(folder / "processor" / "__init__.py")
    monkeypatch.syspath_prepend(str(folder))
    # An editable install of the checkout adds a finder of its own, which would come first.
    monkeypatch.setattr(sys, "meta_path", [PathFinder, *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "processor"]:
        monkeypatch.delitem(sys.modules, name)
    return _file(folder / "processor" / "libprocessor.so")


def test_argument_comes_before_variable_before_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = _package(tmp_path / "installed", monkeypatch)
    argument, variable = _file(tmp_path / "a.so"), _file(tmp_path / "b.so")
    monkeypatch.setenv(VARIABLE, str(variable))
    assert find_library(argument) == argument
    assert find_library() == variable
    monkeypatch.delenv(VARIABLE)
    assert find_library() == packaged
    assert "processor" not in sys.modules


def test_library_is_identified_by_its_real_path(tmp_path: Path) -> None:
    real = _file(tmp_path / "real.so")
    (tmp_path / "link.so").symlink_to(real)
    assert find_library(tmp_path / "link.so") == find_library(str(real)) == real


def test_what_was_tried_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = _package(tmp_path / "installed", monkeypatch)
    packaged.unlink()
    monkeypatch.delenv(VARIABLE, raising=False)
    tried = f"--op-library: not given; PROCESSOR_LIBRARY: not set; beside the package processor: {packaged}"
    with pytest.raises(UnreadableError) as caught:
        find_library()
    assert str(caught.value) == f"libprocessor.so: no file {packaged}, expected a library of TensorFlow ops ({tried})"
    monkeypatch.setenv(VARIABLE, "elsewhere.so")
    with pytest.raises(UnreadableError, match=r"no file here.so, .*--op-library: here.so; PROCESSOR_LIBRARY: elsewh"):
        find_library("here.so")


def test_the_library_is_loaded_once() -> None:
    first = load_library()
    assert load_library() == load_library(first) == first
    assert first == Path(os.path.realpath(first))


def test_a_second_library_is_refused(tmp_path: Path) -> None:
    first = load_library()
    other = _file(tmp_path / "other.so")
    with pytest.raises(UnreadableError, match=f"{other}: {first} is loaded already, expected one op library"):
        load_library(other)


@pytest.mark.usefixtures("unloaded")
def test_no_library_of_ops(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"other.so: file too short, expected a library"):
        load_library(_file(tmp_path / "other.so"))


@pytest.mark.usefixtures("unloaded")
def test_another_tensorflow_is_named(tmp_path: Path) -> None:
    import tensorflow as tf

    (tmp_path / "x.c").write_text("void gone_since(void); void f(void) { gone_since(); }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "x.so", "x.c", "-Wl,-z,now"], cwd=tmp_path, check=True)
    said = f"undefined symbol: gone_since, expected a library that was built against TensorFlow {tf.__version__}"
    with pytest.raises(UnreadableError, match=said):
        load_library(tmp_path / "x.so")


def test_which_ops_are_ours() -> None:
    assert [is_ours(op) for op in ("RecDenseTower", "RecX", "Recv", "RecordInput", "Reciprocal", "MatMul")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


@pytest.fixture
def with_new_op(tiny_model: Path, tmp_path: Path) -> Path:
    """A model whose output is of an op that this library does not have."""
    model = read_model(tiny_model)
    (last,) = model.graph.of("MatMul")
    added = model.graph.add("RecFromTheFuture", [last.output()])
    model.graph.replace(last.output(), added.output())
    model.graph.set_input(added, 0, last.output())
    write_saved_model(model, tmp_path / "new")
    return tmp_path / "new"


def test_a_model_that_needs_a_newer_library(with_new_op: Path, tiny_model: Path) -> None:
    said = rf"new: op RecFromTheFuture is not in {load_library()}, expected a newer libprocessor"
    with pytest.raises(UnreadableError, match=said):
        verify(tiny_model, with_new_op, samples=2)


@pytest.mark.usefixtures("unloaded")
def test_model_can_be_inspected_without_the_library(
    with_new_op: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "nowhere.so")
    assert inspect(with_new_op).models[0].custom_ops == ["RecFromTheFuture"]
    with pytest.raises(UnreadableError, match=r"new: it uses RecFromTheFuture; libprocessor.so: no file nowhere.so, "):
        verify(tiny_model, with_new_op, samples=2)


def test_a_fused_model_is_not_cut(with_new_op: Path, tmp_path: Path) -> None:
    from graph_tools import cut

    with pytest.raises(UsageError, match="contains RecFromTheFuture, expected a model that is not fused yet"):
        cut(with_new_op, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_fused_model_says_what_its_ops_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    from graph_tools import fuse

    fused_tower.use_passes(monkeypatch, fused_tower.FuseLayers())
    fuse(fused_tower.build_tower(tmp_path / "source"), tmp_path / "out", samples=3)
    message = saved_model_pb2.SavedModel.FromString((tmp_path / "out" / "saved_model.pb").read_bytes())
    assert [op.name for op in message.meta_graphs[0].meta_info_def.stripped_op_list.op] == ["RecDenseTower"]
    monkeypatch.setattr(op_library, "_loaded", None)
    monkeypatch.setenv(VARIABLE, "nowhere.so")
    assert inspect(tmp_path / "out").models[0].custom_ops == ["RecDenseTower"]

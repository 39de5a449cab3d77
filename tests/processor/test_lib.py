# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import processor
from helpers.system.programs import prefer_python_path
from processor import _lib, _tensorflow


def run_python(code: str, *, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    root = path or Path(processor.__file__).parent.parent
    variables = {name: value for name, value in os.environ.items() if name != "PROCESSOR_LIBRARY"}
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        env=variables | {"PYTHONPATH": str(root)} | environment,
    )


def test_import_does_not_load_the_library() -> None:
    run = run_python("""
        import processor, sys
        maps = open("/proc/self/maps").read()
        assert "libprocessor" not in maps and "libtensorflow" not in maps, maps
        assert "tensorflow" not in sys.modules
    """)
    assert run.returncode == 0, run.stderr


def test_library_path_prefers_argument_then_variable_then_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument, variable, packaged = (tmp_path / name for name in ("a.so", "v.so", "p.so"))
    for file in (argument, variable, packaged):
        file.touch()
    monkeypatch.setattr(_lib, "_PACKAGED", packaged)
    monkeypatch.delenv("PROCESSOR_LIBRARY", raising=False)
    assert processor.library_path() == packaged
    monkeypatch.setenv("PROCESSOR_LIBRARY", str(variable))
    assert processor.library_path() == variable
    assert processor.library_path(argument) == argument


def test_library_path_missing_lists_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing.so"
    monkeypatch.setenv("PROCESSOR_LIBRARY", str(missing))
    with pytest.raises(processor.NotFoundError) as caught:
        processor.library_path()
    for text in ("argument: not given", f"PROCESSOR_LIBRARY: {missing}", "package: "):
        assert text in str(caught.value)


def test_library_is_loaded_only_once() -> None:
    processor.load_library()
    lib = _lib.get_lib()
    processor.load_library()
    processor.load_library(processor.library_path())
    assert _lib.get_lib() is lib


def test_load_library_refuses_a_second_library(tmp_path: Path) -> None:
    processor.load_library()
    other = tmp_path / "other.so"
    other.touch()
    with pytest.raises(processor.FailedPreconditionError, match="is already loaded"):
        processor.load_library(other)


def test_threads_load_the_library_once() -> None:
    run = run_python("""
        import threading
        from processor import _lib
        opened, original = [], _lib._open
        def count(path):
            opened.append(path)
            return original(path)
        _lib._open = count
        threads = [threading.Thread(target=_lib.get_lib) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(opened) == 1, opened
    """)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("level", "kept", "shown"), [(None, "1", False), ("0", "0", True), ("2", "2", False)])
def test_info_log_lines_are_hidden_by_default(
    level: str | None, kept: str, shown: bool, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    code = f"""
        import os, processor
        assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == {level!r}
        processor.Model({str(tiny_model)!r}).close()
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == {kept!r}
    """
    run = run_python(code, **({} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}))
    assert run.returncode == 0, run.stderr
    assert ("Reading SavedModel from" in run.stderr) == shown


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_load_library_reports_a_file_that_is_not_a_library(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "libprocessor.so"
    file.write_bytes(content)
    run = run_python(f"import processor; processor.load_library({str(file)!r})")
    assert run.returncode == 1
    assert "FailedPreconditionError" in run.stderr
    assert "expected libprocessor" in run.stderr


def test_load_library_reports_a_library_without_our_functions() -> None:
    libraries = sorted(_tensorflow.package_folder().glob("libtensorflow_framework.so.2"))  # type: ignore[union-attr]
    run = run_python(f"import processor; processor.load_library({str(libraries[0])!r})")
    assert run.returncode == 1
    assert "FailedPreconditionError" in run.stderr
    assert "processor_abi_version" in run.stderr


def test_struct_sizes_are_those_of_the_library() -> None:
    lib = _lib.get_lib()
    sizes = _lib.struct_sizes()
    assert {"processor_error", "processor_request", "processor_tensor", "processor_target"} <= set(sizes)
    assert sizes == {name: lib.processor_sizeof(name.encode()) for name in sizes}
    assert lib.processor_sizeof(b"processor_nonsense") == 0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("int32_t priority;", "int32_t priority;\n  int64_t drift;", "request has"),
        ("PROCESSOR_ABI_VERSION 0x0001", "PROCESSOR_ABI_VERSION 0x0002", "ABI 1.3, expected 2.3"),
    ],
)
def test_drifted_declarations_are_refused(
    repository: Path, tmp_path: Path, before: str, after: str, message: str
) -> None:
    header = (repository / "libprocessor/include/processor/processor.h").read_text(encoding="utf-8")
    assert before in header
    (tmp_path / "processor.h").write_text(header.replace(before, after), encoding="utf-8")
    package = tmp_path / "processor"
    shutil.copytree(
        Path(processor.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "include", "__pycache__")
    )
    subprocess.run(
        [sys.executable, package / "_build_ffi.py", tmp_path / "processor.h", package], check=True, capture_output=True
    )
    prefer_python_path(tmp_path)
    run = run_python(
        "import processor; processor.load_library()", path=tmp_path, PROCESSOR_LIBRARY=str(processor.library_path())
    )
    assert run.returncode == 1
    assert message in run.stderr


@pytest.mark.parametrize("first", ["processor", "tensorflow"])
def test_library_and_tensorflow_share_a_process(first: str, tiny_model: Path) -> None:
    use = {
        "processor": f"""
            import numpy as np, processor
            model = processor.Model({str(tiny_model)!r})
            assert model.run({{"x": np.ones((1, 3), "f4")}})["y"].tolist() == [[6.5]]
        """,
        "tensorflow": f"""
            import tensorflow as tf
            serve = tf.saved_model.load({str(tiny_model)!r}).signatures["serving_default"]
            assert serve(x=tf.ones((1, 3)))["y"].numpy().tolist() == [[6.5]]
        """,
    }
    second = ({"processor", "tensorflow"} - {first}).pop()
    run = run_python("\n".join(textwrap.dedent(use[name]) for name in (first, second, first)) + "\nmodel.close()")
    assert run.returncode == 0, run.stderr


def test_only_one_copy_of_tensorflow_is_mapped(tiny_model: Path) -> None:
    run = run_python(f"""
        import processor, tensorflow
        with processor.Model({str(tiny_model)!r}):
            maps = open("/proc/self/maps").read().splitlines()
        assert len({{line.split()[-1] for line in maps if "libtensorflow_cc" in line}}) == 1
    """)
    assert run.returncode == 0, run.stderr


def test_library_away_from_tensorflow_opens_it_by_path(tmp_path: Path, tiny_model: Path) -> None:
    # In another folder, no entry of its RUNPATH is valid.
    copy = tmp_path / "away" / "libprocessor.so"
    copy.parent.mkdir()
    shutil.copy(processor.library_path(), copy)
    run = run_python(f"import processor; processor.Model({str(tiny_model)!r}).close()", PROCESSOR_LIBRARY=str(copy))
    assert run.returncode == 0, run.stderr


def test_library_beside_tensorflow_needs_no_help(tmp_path: Path, tiny_model: Path) -> None:
    # As in an installed wheel: site-packages/processor beside site-packages/tensorflow.
    (tmp_path / "tensorflow").symlink_to(_tensorflow.package_folder())  # type: ignore[arg-type]
    (tmp_path / "processor").mkdir()
    copy = tmp_path / "processor" / "libprocessor.so"
    shutil.copy(processor.library_path(), copy)
    run = run_python(
        f"""
        from processor import _tensorflow
        assert _tensorflow.open_libraries(__import__("pathlib").Path({str(copy)!r}), 2) == []
        import processor
        processor.Model({str(tiny_model)!r}).close()
        """,
        PROCESSOR_LIBRARY=str(copy),
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("versions", [{}, {"tensorflow-cpu": "2.21.0"}, {"tensorflow": "2.21.3"}])
@pytest.mark.filterwarnings("error")
def test_check_versions_compares_minor_versions(versions: dict[str, str]) -> None:
    _tensorflow.check_versions(versions, "2.21.0")


@pytest.mark.parametrize("versions", [{"tensorflow-cpu": "2.20.0"}, {"tensorflow": "2.22.0rc1"}])
def test_version_mismatch_says_what_to_install(versions: dict[str, str]) -> None:
    with pytest.raises(processor.FailedPreconditionError) as caught:
        _tensorflow.check_versions(versions, "2.21.0")
    assert "expected 2.21" in str(caught.value)
    assert "pip install 'tensorflow-cpu==2.21.*'" in str(caught.value)


def test_check_versions_warns_of_two_distributions() -> None:
    with pytest.warns(RuntimeWarning, match="own the same files"):
        _tensorflow.check_versions({"tensorflow-cpu": "2.21.0", "tensorflow": "2.21.0"}, "2.21.0")


def test_missing_tensorflow_says_what_to_install(tmp_path: Path) -> None:
    # An environment with all packages except TensorFlow.
    visible = tmp_path / "site"
    visible.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("tensorflow"):
            (visible / entry.name).symlink_to(entry)
    library = tmp_path / "elsewhere" / "libprocessor.so"
    library.parent.mkdir()
    shutil.copy(processor.library_path(), library)
    run = subprocess.run(
        [sys.executable, "-S", "-c", "import processor; processor.load_library()"],
        capture_output=True,
        text=True,
        env={
            "PYTHONPATH": f"{Path(processor.__file__).parent.parent}:{visible}",
            "PROCESSOR_LIBRARY": str(library),
        },
    )
    assert run.returncode == 1
    assert "TensorFlow: not installed, expected tensorflow-cpu" in run.stderr
    assert "pip install 'tensorflow-cpu==2.21.*'" in run.stderr

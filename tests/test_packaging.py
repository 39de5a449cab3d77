# SPDX-License-Identifier: Apache-2.0
"""Check what is shipped: metadata, exported symbols, search paths, the wheel, and the distribution for C."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import processor
from helpers.models.model_builders import linear_score
from helpers.system.build_lock import build_lock
from helpers.system.programs import prefer_python_path, require, run, run_ok

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "processor" / "libprocessor.so"
DROP_IN = {"initialize", "process", "batch_process", "get_serving_model_info"}
# Of the environment only what a shell always has: nothing of this checkout or its .venv.
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TF_CPP_MIN_LOG_LEVEL": "3"}

with (ROOT / "pyproject.toml").open("rb") as _file:
    PYPROJECT = tomllib.load(_file)
PROJECT = PYPROJECT["project"]


def _dynamic(library: Path) -> dict[str, list[str]]:
    """Read the dynamic section: tag → values."""
    entries: dict[str, list[str]] = {}
    for tag, value in re.findall(r"\((\w+)\)\s+[^\[\n]*\[([^\]]*)\]", run_ok(["readelf", "-d", "-W", library])):
        entries.setdefault(tag, []).append(value)
    return entries


def _exported(library: Path) -> set[str]:
    return {line.split()[-1] for line in run_ok(["nm", "-D", "--defined-only", library]).splitlines() if line}


def _check_search_path(library: Path) -> list[str]:
    """Check that every folder in the RUNPATH is relative to the library; return them."""
    dynamic = _dynamic(library)
    assert "RPATH" not in dynamic
    folders = dynamic["RUNPATH"][0].split(":")
    assert all(folder == "$ORIGIN" or folder.startswith("$ORIGIN/") for folder in folders)
    return folders


def test_version_has_one_source() -> None:
    assert run_ok([sys.executable, "-m", "processor", "--version"], cwd=ROOT).startswith(
        f"recprocessor {PROJECT['version']}\n"
    )


def test_tensorflow_extras_are_pinned_to_the_version_built_against() -> None:
    minor = ".".join(importlib.metadata.version("tensorflow-cpu").split(".")[:2])
    for extra, package in (("cpu", "tensorflow-cpu"), ("tensorflow", "tensorflow")):
        (requirement,) = (Requirement(text) for text in PROJECT["optional-dependencies"][extra])
        assert requirement.name == package
        assert requirement.specifier.contains(f"{minor}.0")
        assert not requirement.specifier.contains(f"2.{int(minor.split('.')[1]) + 1}.0")
        assert not requirement.specifier.contains(f"2.{int(minor.split('.')[1]) - 1}.0")


def test_dependencies_name_no_tensorflow() -> None:
    names = [Requirement(text).name for text in PROJECT["dependencies"]]
    assert not [name for name in names if "tensorflow" in name]


def test_build_requirements_agree_with_the_build_group() -> None:
    # Otherwise `make build` and `pip install .` would compile against different packages.
    group = {Requirement(text) for text in PYPROJECT["dependency-groups"]["build"] if isinstance(text, str)}
    pinned = {item for item in map(Requirement, PYPROJECT["build-system"]["requires"]) if "==" in str(item)}
    assert pinned
    assert pinned <= group


def test_extra_and_group_of_graph_tools_are_the_same() -> None:
    assert PROJECT["optional-dependencies"]["graph-tools"] == PYPROJECT["dependency-groups"]["graph-tools"]


def test_extra_and_group_of_cost_model_are_the_same() -> None:
    assert PROJECT["optional-dependencies"]["cost-model"] == PYPROJECT["dependency-groups"]["cost-model"]


def test_extra_and_group_of_serving_proxy_are_the_same() -> None:
    group = PYPROJECT["dependency-groups"]["serving-proxy"]
    whole = [*PYPROJECT["dependency-groups"]["graph-tools"], *(entry for entry in group if isinstance(entry, str))]
    assert PROJECT["optional-dependencies"]["serving-proxy"] == whole


def test_changelog_begins_with_the_version_of_the_programs() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    version = re.escape(PROJECT["version"])
    assert re.fullmatch(rf"\[{version}\] (\(unreleased\)|- \d{{4}}-\d\d-\d\d)", headings[0])
    assert not [heading for heading in headings[1:] if "unreleased" in heading.lower()]


def test_library_exports_only_its_interfaces() -> None:
    symbols = _exported(LIBRARY)
    assert {name for name in symbols if not name.startswith("processor_")} == DROP_IN
    declared = set()
    for header in (ROOT / "libprocessor" / "include" / "processor").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
        declared |= set(re.findall(r"^PROCESSOR_(?:DEEPREC_)?API\s[^;{]*?(\w+)\(", text, re.MULTILINE))
    assert symbols == declared


def test_library_search_path_is_relative() -> None:
    assert _check_search_path(LIBRARY)[:3] == ["$ORIGIN", "$ORIGIN/../tensorflow", "$ORIGIN/../../.."]


def test_library_needs_tensorflow_and_no_python() -> None:
    needed = _dynamic(LIBRARY)["NEEDED"]
    assert {"libtensorflow_cc.so.2", "libtensorflow_framework.so.2", "libdnnl.so.3"} <= set(needed)
    assert not [name for name in needed if "python" in name]


def test_library_contains_no_path_of_the_build_machine() -> None:
    assert str(ROOT).encode() not in LIBRARY.read_bytes()


@contextmanager
def _as_configured(build: Path, safe: Path) -> Iterator[None]:
    """Leave a build folder configured as it was."""
    cache = build / "CMakeCache.txt"
    if not cache.exists():
        yield
        return
    shutil.copy2(cache, safe)
    try:
        yield
    finally:
        shutil.copy2(safe / cache.name, cache)
        for name in ("CMakeInit.txt", ".skbuild-info.json"):
            (build / name).unlink(missing_ok=True)
        run_ok([Path(sys.executable).with_name("cmake"), "-S", ROOT, "-B", build], timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install .` builds, with the packages of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    environment = os.environ | {"CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))}
    # Objects are compiled by the same commands for a wheel, which Ninja sees to; only what is configured differs.
    with build_lock() as build, _as_configured(build, tmp_path_factory.mktemp("configured")):
        run_ok([*command, "-C", f"build-dir={build}", ROOT], env=environment, timeout=1700)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_wheel_contains_library_headers_and_binding(wheel: Path) -> None:
    assert wheel.name == f"recprocessor-{PROJECT['version']}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"recprocessor-{PROJECT['version']}.dist-info/METADATA").decode()
        commands = archive.read(f"recprocessor-{PROJECT['version']}.dist-info/entry_points.txt").decode()
    modules = {f"processor/{path.name}" for path in (ROOT / "processor").glob("*.py")}
    modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "graph_tools").rglob("*.py")}
    modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "serving_proxy").rglob("*.py")}
    modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "elastic_training").rglob("*.py")}
    # The event loop of the simulator is C++ and is compiled on the machine where it runs.
    for kind in ("*.py", "*.cc", "scenarios/*.yaml", "scenarios/*.json"):
        modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "cost_model").rglob(kind)}
    modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "graph_tools").rglob("*.binpb")}
    for kind in ("*.sql", "*.binpb", "page/static/*"):
        modules |= {str(path.relative_to(ROOT)) for path in (ROOT / "serving_proxy").rglob(kind)}
    expected = modules | {
        "processor/_abi.py",
        "processor/_build.py",
        "processor/py.typed",
        "graph_tools/py.typed",
        "cost_model/py.typed",
        "serving_proxy/py.typed",
        "elastic_training/py.typed",
        "elastic_training/libelastic_training.so",
        "cost_model/simulation/libcost_model_engine.so",
        "processor/libprocessor.so",
        "processor/libprocessor_rules.so",
        "processor/include/processor/processor.h",
        "processor/include/processor/deeprec.h",
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert f"recprocessor-{PROJECT['version']}.dist-info/licenses/LICENSE" in names
    assert "Provides-Extra: cpu" in metadata
    assert "Provides-Extra: tensorflow" in metadata
    assert "Provides-Extra: graph-tools" in metadata
    assert "Provides-Extra: serving-proxy" in metadata
    assert "Provides-Extra: cost-model" in metadata
    assert "cost-model = cost_model.cli:main" in commands
    assert "graph-tools = graph_tools.cli:main" in commands
    assert "serving-proxy = serving_proxy.cli:main" in commands


def _install(environment: Path, *what: str | Path) -> Path:
    """Install into a new environment that has, by links, what this one has; return its interpreter."""
    run_ok([sys.executable, "-m", "venv", "--without-pip", environment])
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    ours = ("pip", "recprocessor", "_editable_skbc_recprocessor", "processor", "__", "_virtualenv")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(ours):
            (site / entry.name).symlink_to(entry)
    (environment / "lib" / "libdnnl.so.3").symlink_to(Path(sysconfig.get_path("data"), "lib", "libdnnl.so.3"))
    python = environment / "bin" / "python"
    run_ok([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", *what])
    return python


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel."""
    return _install(tmp_path_factory.mktemp("env") / "env", wheel)


_SERVE = """
import json, sys, numpy, processor
with processor.Model(sys.argv[1]) as model:
    y = model.run({"x": numpy.array([[1, 2, 3], [4, 5, 6]], numpy.float32)})["y"]
mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps({"y": y.tolist(), "library": str(processor.library_path()), "mapped": sorted(mapped)}))
"""
_EXPECTED = linear_score(np.array([[1, 2, 3], [4, 5, 6]], np.float32)).tolist()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_installed_wheel_serves_a_model(installed: Path, tiny_model: Path) -> None:
    answer = json.loads(run_ok([installed, "-I", "-c", _SERVE, tiny_model], env=CLEAN))
    assert answer["y"] == _EXPECTED
    assert Path(answer["library"]).is_relative_to(installed.parent.parent)
    assert str(LIBRARY) not in answer["mapped"]
    _check_search_path(Path(answer["library"]))
    version = run_ok([installed, "-I", "-m", "processor", "--version"], env=CLEAN)
    assert version.startswith(f"recprocessor {PROJECT['version']}\n")
    include = Path(run_ok([installed, "-I", "-m", "processor", "--include-path"], env=CLEAN).strip())
    assert (include / "processor" / "processor.h").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_wheel_elsewhere_opens_tensorflow_by_its_path(wheel: Path, tiny_model: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    prefer_python_path(tmp_path)
    environment = CLEAN | {"PYTHONPATH": str(tmp_path)}
    answer = json.loads(run_ok([sys.executable, "-c", _SERVE, tiny_model], env=environment, cwd=tmp_path))
    assert answer["y"] == _EXPECTED
    assert answer["library"] == str(tmp_path / "processor" / "libprocessor.so")
    assert [name for name in answer["mapped"] if name.endswith("tensorflow/libtensorflow_cc.so.2")]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution of `make dist`, unpacked into an empty folder."""
    build = ROOT / "build" / "release"
    cmake = Path(sys.executable).with_name("cmake")
    with build_lock():
        run_ok([cmake, "--build", build, "--target", "processor_dist"], timeout=1700)
    folder = tmp_path_factory.mktemp("dist")
    run_ok([sys.executable, ROOT / "tools" / "make_dist.py", "--build", build, "--output", folder, "--level", "0"])
    (archive,) = folder.glob("*.tar.gz")
    assert archive.name == f"libprocessor-{PROJECT['version']}-linux-x86_64.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_distribution_is_complete(unpacked: Path) -> None:
    libraries = {path.name for path in (unpacked / "lib").glob("*.so*")}
    assert libraries == {
        "libprocessor.so",
        "libtensorflow_cc.so.2",
        "libtensorflow_framework.so.2",
        "libdnnl.so.3",
        "libgomp.so.1",
    }
    assert _check_search_path(unpacked / "lib" / "libprocessor.so") == ["$ORIGIN"]
    assert _exported(unpacked / "lib" / "libprocessor.so") == _exported(LIBRARY)
    assert (unpacked / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    notices = (unpacked / "THIRD_PARTY_NOTICES.txt").read_text(encoding="utf-8")
    for text in ("TensorFlow", "oneDNN", "GCC Runtime Library Exception", "JSON for Modern C++", "Eigen", "Boring SSL"):
        assert text in notices
    for header in ("processor.h", "deeprec.h"):
        assert (unpacked / "include" / "processor" / header).is_file()
    sources = (unpacked / "go").rglob("*.go")
    embeds = [
        (path, re.findall(r"^//go:embed (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)) for path in sources
    ]
    embedded = [path.parent / name for path, names in embeds for name in names]
    assert embedded
    assert [path for path in embedded if not path.is_file()] == []


def _check_host(host: Path, unpacked: Path, model: Path) -> None:
    """Check that a program runs without an environment, and finds every library in the distribution or the system."""
    answer = run([host, model, "--seconds", "0.2"], env={})
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found = re.findall(r"=> (/\S+)", run_ok(["ldd", host], env={"PATH": CLEAN["PATH"]}))
    ours = [Path(path).resolve() for path in found if Path(path).resolve().is_relative_to(unpacked.resolve())]
    assert {path.name for path in ours} >= {"libprocessor.so", "libtensorflow_cc.so.2", "libdnnl.so.3", "libgomp.so.1"}
    assert not [path for path in found if str(ROOT) in path or "site-packages" in path]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_distribution_builds_a_host_by_pkg_config(unpacked: Path, tiny_model: Path, tmp_path: Path) -> None:
    require("pkg-config", "make")
    environment = CLEAN | {"PKG_CONFIG_PATH": str(unpacked / "lib" / "pkgconfig")}
    assert run_ok(["pkg-config", "--modversion", "recprocessor"], env=environment).strip() == PROJECT["version"]
    run_ok(["make", "-C", unpacked / "examples" / "c", f"OUT={tmp_path}"], env=environment)
    host = tmp_path / "host"
    _check_host(host, unpacked, tiny_model)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_distribution_builds_a_host_by_cmake(unpacked: Path, tiny_model: Path, tmp_path: Path) -> None:
    files = sorted((unpacked / "examples" / "c").glob("*.c"))
    sources = " ".join(str(path) for path in files if path.name != "drop_in.c")  # a program of its own
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\n"
        "project(host LANGUAGES C)\n"
        f"find_package(recprocessor {PROJECT['version']} REQUIRED)\n"
        "find_package(Threads REQUIRED)\n"
        f"add_executable(host {sources})\n"
        "target_link_libraries(host recprocessor::processor Threads::Threads m)\n",
        encoding="utf-8",
    )
    cmake = Path(sys.executable).with_name("cmake")
    build = tmp_path / "build"
    run_ok([cmake, "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={unpacked}"], env=CLEAN)
    run_ok([cmake, "--build", build], env=CLEAN)
    _check_host(build / "host", unpacked, tiny_model)


def _libraries_below(folder: Path) -> list[Path]:
    """Find every libprocessor.so in a folder, except in those where builds and distributions are made."""
    found = []
    for path, folders, files in os.walk(folder):
        if Path(path) == ROOT:
            folders[:] = [name for name in folders if name not in {"build", "dist", ".cache", "results"}]
        found += [Path(path, name) for name in files if name == LIBRARY.name]
    return found


def test_checkout_installs_in_place_with_its_commands_and_one_library(tmp_path: Path) -> None:
    # As `make build` does it.
    python = _install(tmp_path / "env", "--no-build-isolation", "--editable", ROOT)
    for command in PROJECT["scripts"]:
        said = run_ok([python.with_name(command), "--help"], env=CLEAN, cwd=tmp_path)
        assert f"Usage: {command} " in said
    code = "import processor, serving_proxy.version as v; print(v.version(), processor.library_path())"
    said = run_ok([python, "-I", "-c", code], env=CLEAN, cwd=tmp_path)
    assert said.split() == [PROJECT["version"], str(LIBRARY.resolve())]
    assert _libraries_below(tmp_path) == []
    assert _libraries_below(ROOT) == [LIBRARY]


def test_installed_tensorflow_is_the_one_built_against() -> None:
    build = json.loads(
        run_ok(
            [
                sys.executable,
                "-c",
                "import processor._lib as l; from processor._ffi import ffi;"
                "print(ffi.string(l.get_lib().processor_build_info()).decode())",
            ],
            cwd=ROOT,
        )
    )
    assert build["tensorflow"]["built"] == build["tensorflow"]["running"]
    assert build["version"] == PROJECT["version"]
    assert processor.library_path() == LIBRARY.resolve()

# SPDX-License-Identifier: Apache-2.0
"""Check which package may import which, as far as the contracts in pyproject.toml cannot express it.

The contracts, which `make lint` checks, know neither packages of others nor late imports nor includes of C++.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Package: what it may import besides the standard library and itself, at the top of a file and late (in a function).
ALLOWED = {
    "processor": ({"cffi", "_cffi_backend", "numpy"}, {"ml_dtypes"}),
    # It opens libprocessor's ops for fused graphs as an op library, without importing the binding.
    "graph_tools": ({"numpy", "google_crc32c", "ml_dtypes", "rich", "typer"}, {"tensorflow", "google"}),
    # A model is profiled through the binding.
    "cost_model": ({"numpy", "rich", "typer"}, {"matplotlib", "processor", "yaml"}),
    # Only the proxy knows the other packages; hosts, optimization and profiling are separate processes.
    # The code that decides about cores is pure.
    "serving_proxy": (
        {
            "cost_model",
            "fastapi",
            "google",
            "google_crc32c",
            "h11",
            "httpx",
            "numpy",
            "prometheus_client",
            "pydantic",
            "pydantic_settings",
            "rich",
            "starlette",
            "typer",
            "uvicorn",
        },
        # Stores of artifacts in S3 and the like are read by what the user has installed.
        {"fsspec", "graph_tools", "obstore", "processor", "ray"},
    ),
    # A separate process that serves; it shares only names and settings with the control plane.
    "serving_proxy/host": (
        {
            "google",
            "grpc",
            "grpc_health",
            "grpc_reflection",
            "h11",
            "httpx",
            "httptools",
            "processor",
            "uvicorn",
            "uvloop",
        },
        {"opentelemetry"},
    ),
    # Tables and deltas are written by graph_tools.store. tf-keras is imported only if the user asks for its layers.
    "elastic_training": ({"keras", "numpy", "tensorflow"}, {"graph_tools", "tf_keras"}),
    # JSON Schemas are written from the dataclasses of reports.
    "tools": ({"cost_model", "google", "graph_tools", "pydantic"}, set()),
}

# Folder of libprocessor/src: the folders and single headers that it may include besides its own.
INCLUDES = {
    # The folder below all others: signatures, the memory that requests may hold, logging, JSON.
    "base": set(),
    "codec": {"src/base/"},
    # It chooses the precision of kernels and creates their shared parts when a model is loaded.
    # The plans of towers show how rows pass through them.
    # It tells towers the number of CPUs while it has moved the threads of the process to fewer.
    "runtime": {
        "src/base/",
        "src/codec/",
        # One view for all runs of a request.
        "src/live/",
        "src/kernels/precision.h",
        "src/kernels/prepared_kernel.h",
        "src/kernels/tower_plan.h",
        "src/kernels/tower_team.h",
        # It applies the segments of a timeline to live models.
        "src/tables/delta_timeline.h",
        # It finds out which rows of tiered tables a request needs before it runs.
        "src/kernels/embedding_plan.h",
        "src/kernels/key_steps.h",
        "src/tables/early_rows.h",
        # It divides memory among the tiered tables of a version, and reports what they do.
        "src/kernels/embedding_table_resource.h",
        "src/tables/embedding_table.h",
        "src/tables/table_file.h",
        "src/tables/table_header.h",
    },
    # TensorFlow can load the ops without the runtime.
    "kernels": {
        "src/base/huge_memory.h",
        "src/base/json_value.h",
        "src/base/kept_objects.h",
        "src/base/mapped_memory.h",
        "src/base/thread_number.h",
        "src/live/",
        "src/tables/",
    },
    # The epochs of live models. It knows no ops; kernels give it what they make of weights.
    "live": {
        "src/base/json_value.h",
        "src/base/mapped_memory.h",
        "src/base/published.h",
        "src/base/thread_number.h",
        "src/tables/",
    },
    # Segments are read into mapped memory and hashed; tiered tables have caches, and log how they read.
    # Resident tables are refused if there is not enough memory. Rows that are read early are memory of a request.
    "tables": {
        "src/base/byte_budget.h",
        "src/base/free_memory.h",
        "src/base/huge_memory.h",
        "src/base/kept_objects.h",
        "src/base/log.h",
        "src/base/mapped_memory.h",
        "src/base/memory_block.h",
        "src/base/sha256.h",
    },
    "host": {"src/base/", "src/codec/", "src/runtime/"},
    # The library's build info lists the precisions that the CPU has.
    "c_api": {"src/base/", "src/codec/", "src/host/", "src/kernels/precision.h", "src/runtime/"},
}


def _imports(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line and top-level name of every import, and whether it is late: in a function or a condition."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0], node.col_offset > 0
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0], node.col_offset > 0


def _python_files(package: str) -> list[Path]:
    others = [ROOT / other for other in ALLOWED if other.startswith(f"{package}/")]
    files = sorted(
        path for path in (ROOT / package).rglob("*.py") if not any(path.is_relative_to(other) for other in others)
    )
    assert files, f"{package}: no Python files, expected some"
    return files


@pytest.mark.parametrize("package", ALLOWED)
def test_package_imports_only_allowed_packages(package: str) -> None:
    siblings = {path.stem for path in _python_files(package)} if package == "tools" else set()
    early, late = ALLOWED[package]
    allowed = early | {package.partition("/")[0]} | siblings | sys.stdlib_module_names
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in _python_files(package)
        for line, name, is_late in _imports(path.read_text(encoding="utf-8"))
        if name not in allowed and not (is_late and name in late)
    ]
    assert not wrong


def test_late_imports_are_found() -> None:
    source = "import numpy\ndef f():\n    import tensorflow.x\n    from demo.y import z\n"
    assert set(_imports(source)) == {(1, "numpy", False), (3, "tensorflow", True), (4, "demo", True)}


def test_import_of_processor_loads_neither_tensorflow_nor_the_library() -> None:
    code = (
        "import sys, processor\n"
        "print('tensorflow' in sys.modules)\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('libtensorflow' in maps, 'libprocessor' in maps)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False", "False"]


@pytest.mark.parametrize("folder", INCLUDES)
def test_library_folder_includes_only_allowed_headers(folder: str) -> None:
    source = ROOT / "libprocessor" / "src" / folder
    files = [path for path in sorted(source.rglob("*")) if path.suffix in {".h", ".cc"}]
    assert files
    allowed = (*sorted(INCLUDES[folder]), f"src/{folder}/")
    wrong = [
        f"{path.relative_to(ROOT)}: {include}"
        for path in files
        for include in re.findall(r'^#include "(src/[^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        if not include.startswith(allowed)
    ]
    assert not wrong


def _included_folders() -> dict[str, set[str]]:
    """Return, for each folder of libprocessor/src that holds sources, the folders that it includes headers of."""
    source = ROOT / "libprocessor" / "src"
    included: dict[str, set[str]] = {}
    for path in sorted(path for path in source.rglob("*") if path.suffix in {".h", ".cc"}):
        folder = str(path.parent.relative_to(source))
        headers = re.findall(r'^#include "src/([^"]+)/[^/"]+"', path.read_text(encoding="utf-8"), re.MULTILINE)
        included.setdefault(folder, set()).update(set(headers) - {folder})
    return included


def test_includes_of_library_folders_have_no_cycle() -> None:
    left = _included_folders()
    assert "runtime/model" in left
    while below := [folder for folder, included in left.items() if not included & left.keys()]:
        for folder in below:
            del left[folder]
    assert not left


def test_public_headers_include_only_the_standard_library() -> None:
    for path in (ROOT / "libprocessor" / "include" / "processor").glob("*.h"):
        included = re.findall(r"^#include (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(included) <= {"<stddef.h>", "<stdint.h>"}, path.name

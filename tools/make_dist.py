# SPDX-License-Identifier: Apache-2.0
"""Write dist/libprocessor-<version>-linux-<machine>.tar.gz: everything that a C or Go program needs, without Python.

    cmake --build build/release --target processor_dist
    python tools/make_dist.py --build build/release

TensorFlow, oneDNN and libgomp are copied as their packages installed them. All libraries are in one folder and find
each other there, so the archive may be unpacked anywhere. The same inputs give the same archive.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from third_party_notices import render as render_notices

ROOT = Path(__file__).resolve().parent.parent
_SOURCES = {".binpb", ".c", ".cc", ".go", ".h", ".md", ".mod", ".proto", ".sum", ".txt"}

# The earliest time that every unpacking program accepts.
_1980 = "315532800"

_README = """\
libprocessor {version}: serves TensorFlow SavedModels from a C shared library
{rule}

lib/             libprocessor.so with TensorFlow {tensorflow}, oneDNN {onednn} and libgomp beside it
include/         processor/processor.h (the C ABI), processor/deeprec.h (the drop-in contract)
lib/pkgconfig/   recprocessor.pc
lib/cmake/       recprocessorConfig.cmake, target recprocessor::processor
examples/c/      complete C programs
go/              the Go module
docs/            reference of the ABI, configuration, statistics, errors

The folder may stand anywhere. No Python is needed. Build the examples against it:

    PKG_CONFIG_PATH=$PWD/lib/pkgconfig make -C examples/c
    examples/c/host MODEL_DIR

With CMake: find_package(recprocessor REQUIRED) and target_link_libraries(host recprocessor::processor), run with
-DCMAKE_PREFIX_PATH=<this folder>.

The machine needs an x86-64 CPU with AVX, {requirements}.
"""


def _version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def _installed(package: str, suffix: str) -> Path:
    """Find a file of an installed package."""
    for file in importlib.metadata.files(package) or []:
        if str(file).endswith(suffix):
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"{package}: no file {suffix}, expected one in the installed package")


def _compiler_library(name: str) -> Path:
    """Find a library of the compiler."""
    compiler = os.environ.get("CC", "cc")
    answer = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    path = Path(answer.stdout.strip())
    if not path.is_absolute():
        raise FileNotFoundError(f"{name}: not found by {compiler}, expected a library of the compiler")
    return path.resolve()


def _libraries(build: Path) -> dict[str, Path]:
    """Return the names in lib/ and the files that they are copied from."""
    tensorflow = "tensorflow-cpu"
    return {
        "libprocessor.so": build / "dist" / "libprocessor.so",
        "libtensorflow_cc.so.2": _installed(tensorflow, "tensorflow/libtensorflow_cc.so.2"),
        "libtensorflow_framework.so.2": _installed(tensorflow, "tensorflow/libtensorflow_framework.so.2"),
        "libdnnl.so.3": _installed("onednn-cpu-gomp", "/libdnnl.so.3"),
        "libgomp.so.1": _compiler_library("libgomp.so.1"),
    }


def _requirements(libraries: dict[str, Path]) -> str:
    """Return the C and C++ run-time libraries that the machine must have, from the versions of the symbols."""
    needs: dict[str, tuple[int, ...]] = {}
    for path in libraries.values():
        table = subprocess.run(["readelf", "-V", "-W", str(path)], check=True, capture_output=True, text=True).stdout
        for family, number in re.findall(r"Name: (GLIBC|GLIBCXX)_([0-9.]+)\b", table):
            version = tuple(int(part) for part in number.split("."))
            needs[family] = max(needs.get(family, (0,)), version)
    texts = {family: ".".join(map(str, version)) for family, version in needs.items()}
    return f"glibc {texts['GLIBC']} or newer and a libstdc++ with GLIBCXX_{texts['GLIBCXX']}"


def _copy_sources(source: Path, target: Path) -> None:
    """Copy the source files of a folder, without build products."""
    for file in sorted(source.rglob("*")):
        if file.is_file() and (file.suffix in _SOURCES or file.name == "Makefile"):
            destination = target / file.relative_to(source)
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, destination)


def assemble(build: Path, tree: Path) -> None:
    """Create the distribution in the folder `tree`; existing content is replaced."""
    shutil.rmtree(tree, ignore_errors=True)
    libraries = _libraries(build)
    (tree / "lib" / "pkgconfig").mkdir(parents=True)
    for name, source in libraries.items():
        # A copy of TensorFlow needs 0.8 GB; a link can be packed as well.
        (tree / "lib" / name).symlink_to(source)
    shutil.copyfile(build / "dist" / "recprocessor.pc", tree / "lib" / "pkgconfig" / "recprocessor.pc")
    package = tree / "lib" / "cmake" / "recprocessor"
    package.mkdir(parents=True)
    for name in ("recprocessorConfig.cmake", "recprocessorConfigVersion.cmake"):
        shutil.copyfile(build / "dist" / name, package / name)
    shutil.copytree(ROOT / "libprocessor" / "include", tree / "include", ignore=shutil.ignore_patterns(".*"))
    _copy_sources(ROOT / "libprocessor" / "examples", tree / "examples")
    _copy_sources(ROOT / "libprocessor" / "go", tree / "go")
    _copy_sources(ROOT / "docs", tree / "docs")
    shutil.copyfile(ROOT / "LICENSE", tree / "LICENSE")
    (tree / "THIRD_PARTY_NOTICES.txt").write_text(render_notices(), encoding="utf-8")
    title = f"libprocessor {_version()}: serves TensorFlow SavedModels from a C shared library"
    readme = _README.format(
        version=_version(),
        rule="-" * len(title),
        tensorflow=importlib.metadata.version("tensorflow-cpu"),
        onednn="3.2",
        requirements=_requirements(libraries),
    )
    (tree / "README.txt").write_text(readme, encoding="utf-8")


def _members(tree: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            yield f"{prefix}/{path.relative_to(tree)}", path


def pack(tree: Path, archive: Path, level: int) -> None:
    """Write the tree as a .tar.gz whose bytes depend only on the contents."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    prefix = archive.name.removesuffix(".tar.gz")
    modified = int(os.environ.get("SOURCE_DATE_EPOCH", _1980))
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=level, mtime=modified) as packed,
        # Use a buffer: the archive writer writes only 512 bytes at a time.
        io.BufferedWriter(packed, buffer_size=1 << 20) as buffered,
        tarfile.open(fileobj=buffered, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in _members(tree, prefix):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if ".so" in path.name else 0o644
            entry.mtime = modified
            with path.open("rb") as file:
                tar.addfile(entry, file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="folder that CMake built in")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for the archive")
    parser.add_argument("--level", type=int, default=6, choices=range(10), metavar="0-9", help="compression (6)")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    name = f"libprocessor-{_version()}-linux-{platform.machine()}"
    tree = build / "dist" / name
    assemble(build, tree)
    archive = arguments.output / f"{name}.tar.gz"
    pack(tree, archive, arguments.level)
    print(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

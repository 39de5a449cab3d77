# SPDX-License-Identifier: Apache-2.0
"""Check the images: what is in them, and that the Go host finds every library there."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers.system.go_programs import go_program
from helpers.system.programs import LIBRARY, ROOT, require, run_ok
from helpers.system.tool_modules import load_tool

images = load_tool("make_images")
IMAGES = ROOT / "deploy" / "images"
# What Debian's libc6, libgcc-s1 and libstdc++6 contain.
OF_THE_BASE = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0"} | {
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
}


def needed(file: Path) -> set[str]:
    """Return the names of the libraries that a program or library is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", run_ok(["readelf", "-d", "-W", file])))


def dockerfile(name: str) -> str:
    return (IMAGES / name).read_text(encoding="utf-8")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive that is laid out as that of `make dist`, which takes minutes."""
    made = tmp_path / "dist.tar.gz"
    with tarfile.open(made, "w:gz", compresslevel=1) as tar:
        tar.add(LIBRARY, "libprocessor-1/lib/libprocessor.so")
        tar.add(ROOT / "LICENSE", "libprocessor-1/LICENSE")
        for name in ("include/processor/processor.h", "lib/pkgconfig/recprocessor.pc", "go/go.mod"):
            tar.addfile(tarfile.TarInfo(f"libprocessor-1/{name}"), io.BytesIO())
    return made


def test_the_folder_for_the_builder_has_what_the_images_need(tmp_path: Path, archive: Path) -> None:
    wheel = tmp_path / "recprocessor-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w"):
        pass
    host = tmp_path / "recprocessor-host"
    host.write_bytes(b"program")
    host.chmod(0o755)
    folder = tmp_path / "images"
    (folder / "old").mkdir(parents=True)

    images.stage(archive, host, wheel, folder)

    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "recprocessor/LICENSE",
        "recprocessor/bin/recprocessor-host",
        "recprocessor/lib/libprocessor.so",
        f"wheels/{wheel.name}",
    }
    assert (folder / "recprocessor" / "bin" / "recprocessor-host").stat().st_mode & 0o111
    copied = {text for name in IMAGES.iterdir() for text in re.findall(r"^COPY (\S+)", name.read_text(), re.MULTILINE)}
    assert copied == {path.name for path in folder.iterdir()}


def test_the_image_of_the_host_has_all_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    require("readelf")
    monkeypatch.syspath_prepend(ROOT / "tools")
    libraries = load_tool("make_dist")._libraries(ROOT / "build" / "release")
    libraries["libprocessor.so"] = LIBRARY
    wanted = set().union(*map(needed, [*libraries.values(), go_program("recprocessor-host")]))
    assert "libprocessor.so" in wanted
    assert wanted - libraries.keys() <= OF_THE_BASE
    # The other two packages are in every image of Debian.
    assert "libstdc++6" in dockerfile("host.Dockerfile")


@pytest.mark.parametrize("name", ["host.Dockerfile", "python.Dockerfile"])
def test_images_run_as_the_user_of_the_manifests(name: str) -> None:
    user = "user: 10001"
    assert user in (ROOT / "deploy" / "helm" / "recprocessor" / "values.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^USER (.+)$", dockerfile(name), re.MULTILINE) == ["10001:10001"]


def test_the_image_of_the_host_has_no_python() -> None:
    assert re.findall(r"^ARG BASE=(.+)$", dockerfile("host.Dockerfile"), re.MULTILINE) == ["debian:bookworm-slim"]
    assert re.findall(r"--no-install-recommends (.+?) *\\", dockerfile("host.Dockerfile")) == ["libstdc++6"]


def test_the_python_image_installs_extras_that_exist() -> None:
    extras = re.findall(r"\[(.+)\]", dockerfile("python.Dockerfile"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = project.partition("[project.optional-dependencies]")[2].partition("\n\n[")[0]
    assert [extra for extra in extras[0].split(",") if not re.search(rf"^{extra} = ", known, re.MULTILINE)] == []

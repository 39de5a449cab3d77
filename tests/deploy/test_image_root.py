# SPDX-License-Identifier: Apache-2.0
"""Run the Go host in the root file system of its image, laid out from Debian's packages, without buildah or docker.

`make test-image` builds what it needs; it needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest

from helpers.hosts.served_hosts import ServedHost, model, version
from helpers.models.model_builders import linear_score
from helpers.system.programs import ROOT, require, run_ok, skip_or_fail
from helpers.system.tool_modules import load_tool

images = load_tool("make_images")
HOST = ROOT / "build" / "image-host" / "recprocessor-host"
DOCKERFILE = (ROOT / "deploy" / "images" / "host.Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")

pytestmark = pytest.mark.long

# As pods mount it: all is read-only, except a folder for temporary files and the state directory.
MOUNTS = """
mount --bind {root} {root}
mount -o remount,bind,ro {root}
mount -t proc proc {root}/proc
mount -t tmpfs tmpfs {root}/tmp
mount --bind {state} {root}/mnt
mount --bind {models} {root}/media
mount -o remount,bind,ro {root}/media
exec chroot --userspec={user} {root} env -i PATH={path} "$@"
"""


def said(pattern: str) -> str:
    """Return what the Dockerfile says."""
    (found,) = re.findall(pattern, DOCKERFILE, re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system that the Dockerfile describes."""
    require("mmdebstrap", "chroot", "unshare", "mount")
    if os.geteuid() != 0:
        skip_or_fail("chroot: not root")
    archives = sorted((ROOT / "dist").glob("libprocessor-*.tar.gz"))
    if not archives or not HOST.exists():
        skip_or_fail("dist: not built, expected `make test-image`")
    folder = tmp_path_factory.mktemp("image")
    root, wheel = folder / "root", folder / "empty.whl"
    packages = said(r"--no-install-recommends (.+?) *&&").replace(" ", ",")
    suite = said(r"^ARG BASE=debian:(\w+)-slim$")
    run_ok(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", suite, root], timeout=600)
    for command in re.findall(r"&& ((?:group|user)add .+?) *(?=&&|$)", DOCKERFILE, re.MULTILINE):
        run_ok(["chroot", root, *shlex.split(command)])
    wheel.touch()
    images.stage(archives[-1], HOST, wheel, folder / "staged")
    source, target = said(r"^COPY (\S+ \S+)$").split()
    (folder / "staged" / source).rename(root / target.strip("/"))
    return root


def host_command(root: Path, state_dir: Path, models: Path) -> list[str]:
    """Return the command of a host in the image, with mounts of its own."""
    path, user = said(r"^ENV PATH=(.+)$"), said(r"^USER (.+)$")
    os.chown(state_dir, *map(int, user.split(":")))
    script = MOUNTS.format(root=root, state=state_dir, models=models, path=path, user=user)
    return ["unshare", "--mount", "sh", "-ec", script, "sh", "recprocessor-host", "--state-dir", "/mnt"]


class ImageHost(ServedHost):
    """A host in the root file system of the image, with a model at /media."""

    def __init__(self, root: Path, state_dir: Path, models: Path) -> None:
        super().__init__("go", state_dir, {"linear": model(1, {1: version(Path("/media"))})})
        self._command = host_command(root, state_dir, models)

    def _program(self) -> list[str]:
        return self._command


def test_the_image_has_no_python(image: Path) -> None:
    assert list(image.glob("usr/bin/python*")) == []


def test_the_host_serves_in_the_root_file_system_of_its_image(image: Path, tiny_model: Path, tmp_path: Path) -> None:
    host = ImageHost(image, tmp_path / "state", tiny_model)
    try:
        host.start()
        rows = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.25]], np.float32)
        answer = httpx.post(
            f"http://{host.rest}/v1/models/linear:predict", json={"instances": rows.tolist()}, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        np.testing.assert_allclose(answer.json()["predictions"], linear_score(rows), rtol=1e-6)
    finally:
        assert host.end() == 0, host.log.read_text()[-2000:]


def test_a_library_that_is_missing_would_be_found(image: Path, tmp_path: Path) -> None:
    library = image / "opt" / "recprocessor" / "lib" / "libgomp.so.1"
    beside = library.with_name("moved")
    library.rename(beside)
    try:
        ended = subprocess.run(host_command(image, tmp_path, tmp_path), capture_output=True, timeout=60, check=False)
    finally:
        beside.rename(library)
    assert ended.returncode != 0
    assert b"libgomp.so.1" in ended.stderr

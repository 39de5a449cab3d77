# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers.system.tool_modules import load_tool

fetch_helm = load_tool("fetch_helm")


def wheel_with(folder: Path, *names: str) -> Path:
    """Return a wheel that is packed as that of the registry, with programs that contain their names."""
    layer, archive = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as packed:
        for name in names:
            packed.writestr(name, name)
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        tar.addfile(member, io.BytesIO(layer.getvalue()))
    wheel = folder / "layer-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("aws_cdk/layer/_jsii/layer@1.jsii.tgz", archive.getvalue())
    return wheel


def test_the_programs_are_found_in_the_wheel(tmp_path: Path) -> None:
    found = fetch_helm.read_programs(wheel_with(tmp_path, "helm/helm", "kubectl/kubectl"))
    assert found == {"helm": b"helm/helm", "kubectl": b"kubectl/kubectl"}


@pytest.mark.parametrize("name", ["helm", "helm/helm"])
def test_a_wheel_that_is_packed_otherwise_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=r"layer-1-py3-none-any.whl: .*expected package/lib/layer.zip with .*helm/helm"
    ):
        fetch_helm.read_programs(wheel_with(tmp_path, name))

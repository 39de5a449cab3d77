# SPDX-License-Identifier: Apache-2.0
"""Build the images recprocessor-host and recprocessor, with buildah or docker.

    python tools/make_images.py --archive dist/libprocessor-….tar.gz --host build/image-host/recprocessor-host \
        --wheel dist/recprocessor-….whl

Without a builder, or with --only-stage, it writes only the folder that the builder gets.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "deploy" / "images"


def find_builder() -> str | None:
    """Return buildah, or docker if its daemon answers, or None."""
    if shutil.which("buildah"):
        return "buildah"
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        return "docker"
    return None


def stage(archive: Path, host: Path, wheel: Path, folder: Path) -> None:
    """Write what the Dockerfiles copy; existing content is replaced.

    Parameters
    ----------
    archive : Path
        Of `make dist`.
    host : Path
        The Go host, which looks for libraries in `../lib`.
    wheel : Path
    folder : Path
    """
    shutil.rmtree(folder, ignore_errors=True)
    program = folder / "recprocessor"
    (program / "bin").mkdir(parents=True)
    with tarfile.open(archive) as packed:
        for member in packed:
            _, _, name = member.name.partition("/")
            # Neither headers nor sources are needed to run.
            if name.startswith("lib/lib") or "/" not in name:
                member.name = name
                packed.extract(member, program, filter="data")
    shutil.copy(host, program / "bin" / "recprocessor-host")
    (folder / "wheels").mkdir()
    shutil.copy(wheel, folder / "wheels")


def build(builder: str, file: Path, tag: str, folder: Path) -> None:
    """Build an image.

    Raises
    ------
    subprocess.CalledProcessError
    """
    subprocess.run([builder, "build", "--file", str(file), "--tag", tag, str(folder)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, required=True, help="archive of `make dist`")
    parser.add_argument("--host", type=Path, required=True, help="the Go host")
    parser.add_argument("--wheel", type=Path, required=True, help="wheel of recprocessor")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "images", help="folder for the builder")
    parser.add_argument("--registry", default="", help="prefix of the tags, such as registry.example.com/serving/")
    parser.add_argument("--tag", required=True, help="tag of both images, such as 0.1.0")
    parser.add_argument("--only-stage", action="store_true", help="write the folder, and build nothing")
    given = parser.parse_args()
    stage(given.archive, given.host, given.wheel, given.folder)
    if given.only_stage:
        return 0
    builder = find_builder()
    if builder is None:
        print(f"no buildah, and no docker with a daemon: wrote only {given.folder}", file=sys.stderr)
        return 1
    for file, name in (("host.Dockerfile", "recprocessor-host"), ("python.Dockerfile", "recprocessor")):
        build(builder, IMAGES / file, f"{given.registry}{name}:{given.tag}", given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

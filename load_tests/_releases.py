# SPDX-License-Identifier: Apache-2.0
"""The programs of this checkout and of earlier commits, to run several releases beside each other."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from load_tests._programs import ROOT, ProgramError, find_go_program

__all__ = ["TODAY", "Release", "build_release", "check_out"]

_FOLDER = ROOT / "build" / "releases"
_TARGETS = ("processor", "processor_rules", "binding")
# The finder of the editable installation would find the packages of this checkout.
_SITE = """import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, {root!r})
"""
_WHERE = "import processor, serving_proxy; print(*processor.__path__, *serving_proxy.__path__, sep='\\n')"


@dataclass(frozen=True)
class Release:
    """A checkout with everything built that hosts, agents and proxies need.

    Parameters
    ----------
    name : str
        The commit, or "today".
    root : Path
    site : Path, optional
        Folder whose `sitecustomize.py` makes Python import the packages of the checkout; not needed for this one.
    """

    name: str
    root: Path
    site: Path | None = None

    def command(self, package: str, *arguments: str | os.PathLike[str]) -> list[str]:
        """Return the command that runs a package of the release; `environment` and `root` belong to it."""
        return [sys.executable, "-m", package, *[os.fspath(argument) for argument in arguments]]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for its programs."""
        if self.site is None:
            return dict(os.environ)
        return {**os.environ, "RECPROCESSOR_HOST": str(self.host), "PYTHONPATH": str(self.site)}

    @property
    def host(self) -> Path:
        """Return the path of its Go host."""
        return find_go_program("recprocessor-host", self.root)


TODAY = Release("today", ROOT)


def build_release(commit: str) -> Release:
    """Check out a commit below `build/releases` and build what it needs, unless that was done before.

    The checkout uses the Python environment of this one, so the packages that both need must have the same versions.

    Raises
    ------
    ProgramError
        There is no such commit, or it cannot be built; the message has the end of the compiler's output. Or Python
        does not import its packages.
    """
    name = _run("git", "rev-parse", "--short=12", "--verify", f"{commit}^{{commit}}", folder=ROOT).strip()
    root = _FOLDER / name
    site, is_built = root / "build" / "site", root / "build" / "is-built"
    if not is_built.exists():
        check_out(root, name)
        _compile(root)
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE.format(root=str(root)), encoding="utf-8")
        is_built.touch()
    release = Release(name, root, site)
    found = _run(sys.executable, "-c", _WHERE, folder=root, environment=release.environment).splitlines()
    if {Path(folder).resolve().parent for folder in found} != {root.resolve()}:
        raise ProgramError("python", 0, f"imports {', '.join(found)}, expected packages of {root}")
    return release


def check_out(root: Path, name: str) -> None:
    """Check out a commit that uses the Python environment of this checkout, as far as no earlier run has done it.

    Raises
    ------
    ProgramError
        There is no such commit.
    """
    if not root.exists():
        _run("git", "worktree", "prune", folder=ROOT)
        _run("git", "worktree", "add", "--detach", root, name, folder=ROOT)
    environment = root / ".venv"
    # An earlier run may have ended before it made the link.
    if not environment.is_symlink():
        environment.symlink_to(Path(sys.prefix))


def _compile(root: Path) -> None:
    tools = Path(sys.executable).parent
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
    python = f"-DPython_EXECUTABLE={root}/.venv/bin/python"
    _run(tools / "cmake", "-S", ".", "-B", "build/release", "-G", "Ninja", python, ninja, folder=root)
    _run(tools / "cmake", "--build", "build/release", "--target", *_TARGETS, folder=root)
    # Its `lib` would install the packages of its pyproject.toml into the shared environment.
    _run("make", "-o", "lib", "host-go", folder=root)


def _run(*command: str | os.PathLike[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(" ".join(str(part) for part in command[:3]), done.returncode, done.stderr or done.stdout)
    return done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Describe the environment of a measurement; every result file contains it."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cost_model.cpu_time import busy_share

__all__ = ["describe_environment", "usable_cpus"]


#: How long to watch other processes.
_LOOK_S = 0.5


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _cpu_features() -> list[str]:
    """Return the vector extensions that decide which kernels run."""
    try:
        flags = set(re.split(r"\s+", Path("/proc/cpuinfo").read_text()))
    except OSError:
        return []
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return [name for name in known if name in flags]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def describe_environment(root: Path) -> dict[str, Any]:
    """Describe this machine and this checkout.

    Parameters
    ----------
    root : Path
        The checkout.

    Returns
    -------
    environment : dict
        `commit` (null outside a repository), `modified` (files of the commit differ; other files do not count), `time`
        (UTC), `cpu`, `cpu_features`, `cpus` (that this process may use), `load_average` (1 minute, before the run),
        `busy_before` (part of the CPU time that other processes used just before the run), `system`, `versions`.
    """
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git(root, "rev-parse", "HEAD"),
        "modified": bool(status) if status is not None else None,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cpu_features": _cpu_features(),
        "cpus": usable_cpus(),
        "load_average": round(os.getloadavg()[0], 2),
        "busy_before": round(busy_share(_LOOK_S), 3),
        "system": f"{platform.system()} {platform.release()} {' '.join(platform.libc_ver())}",
        "versions": {
            "python": platform.python_version(),
            "tensorflow": _version("tensorflow-cpu") or _version("tensorflow"),
            "onednn": _version("onednn-cpu-gomp"),
            "numpy": _version("numpy"),
        },
    }

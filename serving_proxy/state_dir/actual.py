# SPDX-License-Identifier: Apache-2.0
"""The hosts' reports: `hosts/<id>/actual.json`, `stats.json` and `shadow.json`, read again only when they change."""

from __future__ import annotations

import fcntl
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from serving_proxy.errors import ProxyError
from serving_proxy.records.hosts import HUNG, HostSeen, VersionSeen
from serving_proxy.system.files import read_regular
from serving_proxy.system.liveness import HostLiveness

_MOST_BYTES = 64 * 1024 * 1024
# A busy host is late now and then; a stopped process stays stopped.
_SILENT_S = 3.0
_STOPPED_S = 1.0
_STATES = {"loading", "warming", "ready", "draining", "failed"}


@dataclass
class _Cached:
    key: tuple[int, ...] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    seen: HostSeen | None = None

    @property
    def written_s(self) -> float:
        """Return when the file was written [s], by the file system's clock."""
        return 0.0 if self.key is None else self.key[-1] / 1e9


class ActualFiles:
    """Reads the reports of all hosts of a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "hosts"
        self.liveness = HostLiveness()
        self._files: dict[Path, _Cached] = {}

    def read(self) -> tuple[HostSeen, ...]:
        """Return every host that has written an `actual.json`, live or dead, by name."""
        try:
            with os.scandir(self.folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError:
            return ()
        self.liveness.begin()
        hosts = [self._host(name) for name in names]
        return tuple(host for host in hosts if host is not None)

    def _host(self, name: str) -> HostSeen | None:
        folder = self.folder / name
        actual = self._load(folder / "actual.json")
        if actual is None:
            return None
        if actual.seen is None:
            actual.seen = parse_actual(name, actual.data)
        stats = self._load(folder / "stats.json")
        alive = is_alive(folder / "lock", actual.seen.pid)
        shadow = self._load(folder / "shadow.json")
        counted = {} if stats is None else stats.data
        if shadow is not None:
            counted = {**counted, "shadow": shadow.data}
        seen = replace(actual.seen, alive=alive, stats=counted, counted_at=0.0 if stats is None else stats.written_s)
        return replace(seen, state=HUNG) if alive and self._hangs(name, seen.pid) else seen

    def _hangs(self, name: str, pid: int) -> bool:
        self.liveness.look(name, self.folder / name, pid)
        silent, stopped = self.liveness.silence(name, pid)
        return silent >= _SILENT_S or stopped >= _STOPPED_S

    def _load(self, path: Path) -> _Cached | None:
        try:
            found = path.stat()
        except OSError:
            self._files.pop(path, None)
            return None
        cached = self._files.setdefault(path, _Cached())
        key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key != cached.key and found.st_size <= _MOST_BYTES:
            try:
                data = json.loads(read_regular(path, _MOST_BYTES))
            except (ProxyError, ValueError, RecursionError):
                # Incomplete, because the host does not write by renaming: its earlier report counts until the file is
                # complete.
                return cached if cached.key is not None else None
            self._files[path] = cached = _Cached(key, data if isinstance(data, dict) else {})
        return cached


def is_alive(lock: Path, pid: int) -> bool:
    """Return whether a host's process runs and has its lock.

    The lock is tried only if there is a process with this pid, so that a host that is starting never finds it taken.
    """
    if not process_runs(pid):
        return False
    try:
        file = os.open(lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def process_runs(pid: int) -> bool:
    """Return whether there is a process with this pid that has not ended."""
    return pid > 0 and process_ticks(pid) is not None


def process_ticks(pid: int) -> int | None:
    """Return when a process began, in the kernel's ticks; None if there is no such process, or it has ended."""
    try:
        # The process name, in parentheses, may itself contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def parse_actual(name: str, data: Mapping[str, Any]) -> HostSeen:
    """Read an `actual.json`; invalid values count as absent."""
    models = {
        str(model): versions
        for model, entry in _mapping(data.get("models")).items()
        if (versions := _versions(_mapping(entry).get("versions")))
    }
    return HostSeen(
        name=name,
        alive=False,
        pid=_number(data.get("pid")),
        state=str(data.get("state") or "starting"),
        generation=_number(data.get("generation")),
        desired_error=_text(data.get("desired_error")),
        started=str(data.get("started") or ""),
        cpus=str(data.get("cpus") or ""),
        endpoints={str(key): str(value) for key, value in _mapping(data.get("endpoints")).items()},
        models=models,
        version=str(data.get("version") or ""),
        features=_features(data.get("features")),
        waiting=_text(data.get("waiting")),
    )


def _versions(data: Any) -> dict[int, VersionSeen]:
    found = {
        int(number): _version(_mapping(entry)) for number, entry in _mapping(data).items() if str(number).isdecimal()
    }
    return {number: version for number, version in found.items() if version is not None}


def _version(details: Mapping[str, Any]) -> VersionSeen | None:
    if details.get("state") not in _STATES:
        return None
    replacement = _mapping(details.get("replacement"))
    return VersionSeen(
        state=details["state"],
        path=_text(details.get("path")),
        error=_text(details.get("error")),
        details=dict(details),
        replacement=_version(replacement) if replacement else None,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _features(value: Any) -> frozenset[str] | None:
    return _one_set(tuple(map(str, value))) if isinstance(value, list) else None


@functools.lru_cache(maxsize=64)
def _one_set(names: tuple[str, ...]) -> frozenset[str]:
    """Return a set that all hosts of a release share: there may be thousands of them."""
    return frozenset(names)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)

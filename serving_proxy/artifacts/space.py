# SPDX-License-Identifier: Apache-2.0
"""Room in a machine's content store: who needs which model, and which one goes first when room is needed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from serving_proxy.artifacts.locks import is_locked, locked
from serving_proxy.errors import ExhaustedError, ProxyError
from serving_proxy.system.files import private_folder, read_regular, replace

log = logging.getLogger("serving_proxy.artifacts")

_MOST_BYTES = 64 * 1024 * 1024
# Room that stays on the disk for everything else.
_SPARE_BYTES = 64 * 1024 * 1024


class Space:
    """The models of a store, its users and its limit.

    Parameters
    ----------
    root : Path
        The folder of the content store.
    state_dir : Path
        The user in whose name models are fetched.
    limit_bytes : int or None
    """

    def __init__(self, root: Path, state_dir: Path, limit_bytes: int | None) -> None:
        self._root = root
        self._models, self._partial, self._blobs = root / "models", root / "partial", root / "blobs"
        self._users = private_folder(root / "users", "model store")
        self._state_dir = state_dir.resolve()
        self._own = self._users / f"{hashlib.sha256(os.fsencode(self._state_dir)).hexdigest()[:32]}.json"
        self._limit_bytes = limit_bytes
        # Models that this process has fetched since it last said which ones it needs.
        self._fetched: set[str] = set()

    def use(self, identity: str) -> None:
        """Record that the user needs a model, before it is fetched."""
        with self._lock():
            self._fetched.add(identity)
            self._write(self._named(self._own) | {identity})
            self._touch(identity)

    def retain(self, identities: Collection[str]) -> None:
        """Record which models the user needs, and remove what exceeds the limit.

        A model that was fetched a moment ago may not be known to the user yet, so it is kept until the next time.
        """
        with self._lock():
            wanted = set(identities) | self._fetched
            self._fetched.clear()
            if wanted != self._named(self._own):
                self._write(wanted)
            for identity in identities:
                self._touch(identity)
            if self._limit_bytes is not None:
                self._evict(0, self._limit_bytes)

    def partial_bytes(self, keys: Collection[str]) -> int:
        """Return the size of what has been fetched of a model before a break [byte]."""
        return sum(_size_of(path) for path in self._partial.iterdir() if path.name.split(".")[0] in keys)

    def make_room(self, needed: int, keep: Collection[str]) -> None:
        """Evict models until there is room for this many bytes more.

        Parameters
        ----------
        needed : int [byte]
        keep : collection of str
            The model that needs room, and the names of its files in `partial`.

        Raises
        ------
        ExhaustedError
            There is not, although all models that nobody needs are gone.
        """
        with self._lock():
            if self._limit_bytes is not None:
                missing = self._evict(needed, self._limit_bytes, keep)
                if missing > 0:
                    raise ExhaustedError(
                        f"{self._root}: {needed} bytes do not fit into the limit of {self._limit_bytes} bytes beside "
                        f"the models that are used, expected {missing} bytes more"
                    )
            missing = self._evict_for_disk(needed, keep)
            if missing > 0:
                raise ExhaustedError(
                    f"{self._root}: the disk has no room for a model of {needed} bytes, expected {missing} bytes more"
                )

    def remove(self, identity: str) -> None:
        """Remove a model's folder and its record; nobody finds it any more from the first moment on."""
        gone = self._partial / f"{identity}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        (self._models / f"{identity}.json").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._models / identity, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _evict(self, needed: int, limit: int, keep: Collection[str] = ()) -> int:
        """Evict until so many bytes fit into a limit; return how many bytes do not."""
        missing = self._size() + needed - limit
        for candidate in self._unused(keep):
            if missing <= 0:
                break
            self._remove_unused(candidate)
            missing = self._size() + needed - limit
        return missing

    def _evict_for_disk(self, needed: int, keep: Collection[str]) -> int:
        def missing() -> int:
            found = os.statvfs(self._root)
            return needed + _SPARE_BYTES - found.f_bavail * found.f_frsize

        for candidate in self._unused(keep):
            if missing() <= 0:
                break
            self._remove_unused(candidate)
        return missing()

    def _unused(self, keep: Collection[str]) -> Iterator[Path]:
        """Yield what nobody needs: remains of broken fetches first, then models by their last use."""
        for path in sorted(self._partial.iterdir()):
            identity = path.name.split(".")[0]
            lock = self._partial / f"{identity}.lock"
            if path.suffix != ".lock" and path.exists() and identity not in keep and not is_locked(lock):
                # Parts of files belong to the model that is fetched: their own lock is free between two attempts.
                yield path
        used = {identity for user in self._users.glob("*.json") for identity in self._named(user)}
        records = [path for path in self._models.glob("*.json") if path.stem not in used and path.stem not in keep]
        yield from sorted(records, key=lambda path: path.stat().st_mtime)

    def _remove_unused(self, path: Path) -> None:
        log.info("evicts %s", path)
        if path.parent == self._models:
            self.remove(path.stem)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        for blob in self._blobs.iterdir():
            with contextlib.suppress(OSError):
                if blob.stat().st_nlink == 1:
                    blob.unlink()

    def _size(self) -> int:
        """Return the size of all files, each counted once [byte]."""
        return _size_of(self._models, self._partial, self._blobs)

    def _touch(self, identity: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._models / f"{identity}.json")

    def _named(self, user: Path) -> set[str]:
        """Return the models that a user needs; none if its state directory is gone."""
        try:
            body = json.loads(read_regular(user, _MOST_BYTES))
            if os.path.isdir(body["state_dir"]):
                return set(body["models"])
            user.unlink(missing_ok=True)
        except (ProxyError, ValueError, LookupError, TypeError, OSError) as error:
            if user.exists():
                log.warning("%s: %s", user, error)
        return set()

    def _write(self, identities: set[str]) -> None:
        replace(self._own, json.dumps({"state_dir": str(self._state_dir), "models": sorted(identities)}).encode())

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self._root / "lock")


def _size_of(*paths: Path) -> int:
    """Return how much disk space files, or all files below folders, take [byte]; links count once."""
    sizes: dict[int, int] = {}
    left = list(paths)
    while left:
        path = left.pop()
        with contextlib.suppress(OSError):
            if path.is_dir():
                left += path.iterdir()
            else:
                found = path.stat()
                # What is fetched has its full length from the beginning, with holes.
                sizes[found.st_ino] = min(found.st_size, 512 * found.st_blocks)
    return sum(sizes.values())

# SPDX-License-Identifier: Apache-2.0
"""The content store of a machine: artifacts that were fetched from stores, shared by all that run there.

blobs/SHA256          tables, which models share by hard links
models/IDENTITY/      the folder of an artifact, read-only; complete from the moment at which it is there
models/IDENTITY.json  where it came from, and its seal; the time of this file is that of its last use
partial/              what is being fetched, and locks
users/                which models each state directory needs
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.artifacts.fetching import PATIENCE_S, fetch_file
from serving_proxy.artifacts.locks import locked
from serving_proxy.artifacts.manifest import RemoteArtifact, RemoteFile, read_artifact
from serving_proxy.artifacts.space import Space
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import InvalidError
from serving_proxy.gates.fingerprint import files_of, seal_of
from serving_proxy.system.files import private_folder, read_regular, replace, sync_folder

log = logging.getLogger("serving_proxy.artifacts")

# Other models' links to these do not change a model's seal; links to other files would.
_TABLE = ".emb"
_MOST_RECORD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Fetched:
    """An artifact on this machine.

    Attributes
    ----------
    path : Path
        Its folder, which `hosts` can load; it stays until no user needs it.
    url : str
    bytes : int
    sha256 : str or None
        Hash over all its files, as hosts compute it; None: the artifact has no manifest.
    seal : str
        Its seal, as hosts compute it; with the hash in `desired.json`, hosts do not read the files again.
    """

    path: Path
    url: str
    bytes: int
    sha256: str | None
    seal: str


class MachineStore:
    """Fetches artifacts into a folder; several processes of one user may use the same folder.

    Parameters
    ----------
    root : Path
    state_dir : Path
        Whose models are fetched: models that a state directory needs are not evicted while it exists.
    limit_bytes : int, optional
        Largest size of all files; None: as the disk permits.
    patience_s : float [s]
        As for `fetch_file`.
    """

    def __init__(
        self, root: Path, state_dir: Path, limit_bytes: int | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.root = private_folder(root, "model store")
        self.blobs, self.models, self.partial = (self.root / name for name in ("blobs", "models", "partial"))
        for folder in (self.blobs, self.models, self.partial):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._space = Space(self.root, state_dir, limit_bytes)
        self._patience_s = patience_s
        self._counting = threading.Lock()

    def stat(self, url: str) -> RemoteArtifact:
        """Return what an artifact consists of, without fetching it; raise the errors of `fetch`."""
        place = parse_url(url, "model")
        return read_artifact(open_store(place), place)

    def fetch(
        self,
        url: str,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Fetched:
        """Fetch an artifact unless it is there; if another process fetches it, wait for that.

        Parameters
        ----------
        url : str
        cancelled : callable
            True ends the fetching; what has been fetched is used the next time.
        progress : callable
            Called with the number of bytes that are there and the number of all bytes, by several threads.

        Raises
        ------
        UnavailableError, UnauthenticatedError, DeniedError, NotFoundError
            The store cannot be read; or there is no artifact, or half of one.
        InvalidError
            The URL or the manifest is invalid, or bytes are not those of the manifest.
        ExhaustedError
            There is no room for it beside the models that are used.
        CancelledError
        """
        artifact = self.stat(url)
        store = open_store(artifact.url)
        self._space.use(artifact.identity)
        with locked(self.partial / f"{artifact.identity}.lock", cancelled):
            known = self._known(artifact)
            if known is None:
                keys = {artifact.identity, *map(_key, artifact.files)}
                self._space.make_room(artifact.bytes - self._space.partial_bytes(keys), keys)
                known = self._assemble(store, artifact, cancelled, progress)
            self._space.use(artifact.identity)
        progress(artifact.bytes, artifact.bytes)
        return known

    def retain(self, paths: Collection[Path]) -> None:
        """Name the folders that the state directory still needs; others may be evicted from now on."""
        self._space.retain({path.name for path in paths if path.parent == self.models})

    def _known(self, artifact: RemoteArtifact) -> Fetched | None:
        """Return the artifact if it is there and unchanged; remove one that was changed."""
        folder, record = self.models / artifact.identity, self._record(artifact.identity)
        if not folder.is_dir():
            return None
        try:
            kept = json.loads(read_regular(record, _MOST_RECORD_BYTES))
            fetched = Fetched(folder, str(artifact.url), kept["bytes"], kept["fingerprint"], kept["seal"])
            hashes = dict(kept["files"])
            names = {str(path.relative_to(folder)) for path in files_of(folder)}
            if names == hashes.keys():
                if seal_of(folder) == fetched.seal:
                    return fetched
                if all(_sha256_of(folder / name) == sha256 for name, sha256 in hashes.items()):
                    return self._write_record(artifact, hashes)
        except (InvalidError, LookupError, ValueError, TypeError, OSError) as error:
            log.warning("%s: %s", record, error)
        log.warning("%s: its files are not those that were fetched; it is fetched again", folder)
        for path in files_of(folder):
            self._drop_blob(path)
        self._space.remove(artifact.identity)
        return None

    def _drop_blob(self, path: Path) -> None:
        """Remove the blob that a file of a changed model is linked to, so that no other model gets it."""
        found = path.stat()
        for blob in self.blobs.iterdir():
            if os.path.samestat(found, blob.stat()):
                blob.unlink(missing_ok=True)

    def _assemble(
        self,
        store: Store,
        artifact: RemoteArtifact,
        cancelled: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Fetched:
        """Fetch the files into a folder beside, and move it to its place."""
        beside = self.partial / f"{artifact.identity}.folder"
        done, hashes = 0, _Hashes(self.partial / f"{artifact.identity}.hashes")

        def arrived(count: int) -> None:
            nonlocal done
            with self._counting:
                done += count
            progress(done, artifact.bytes)

        for file in artifact.files:
            place = beside / file.name
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if place.is_file() and hashes.of.get(file.name) == _sha256_of(place):
                # An earlier process has fetched it, and ended before all were there.
                arrived(file.bytes)
            else:
                place.unlink(missing_ok=True)
                hashes.add(file.name, self._fetch(store, file, place, cancelled, arrived))
        for folder, _, _ in os.walk(beside):
            sync_folder(Path(folder))
        os.rename(beside, self.models / artifact.identity)
        sync_folder(self.models)
        fetched = self._write_record(artifact, hashes.of)
        hashes.path.unlink(missing_ok=True)
        return fetched

    def _fetch(
        self,
        store: Store,
        file: RemoteFile,
        place: Path,
        cancelled: Callable[[], bool],
        arrived: Callable[[int], None],
    ) -> str:
        """Fetch a file of a model, or link it if another model has it; return its SHA-256."""
        key = _key(file)
        is_table = place.name.endswith(_TABLE)
        with locked(self.partial / f"{key}.lock", cancelled):
            if is_table and file.sha256 is not None and self._link(file.sha256, place):
                arrived(file.bytes)
                return file.sha256
            sha256 = fetch_file(store, file, self.partial / key, place, cancelled, arrived, self._patience_s)
            if is_table and not self._link(sha256, place):
                with contextlib.suppress(FileExistsError):
                    # Another artifact without a manifest has just brought it.
                    os.link(place, self.blobs / sha256)
                sync_folder(self.blobs)
        return sha256

    def _link(self, sha256: str, place: Path) -> bool:
        """Link a table that is there already; return False if it is not, or has been damaged."""
        blob = self.blobs / sha256
        if not blob.is_file():
            return False
        beside = self.partial / f"{sha256}.link"
        beside.unlink(missing_ok=True)
        try:
            # Linked first, so that it is not evicted meanwhile.
            os.link(blob, beside)
        except FileNotFoundError:
            return False
        if _sha256_of(beside) != sha256:
            log.warning("%s: damaged on this machine's disk; it is fetched again", blob)
            beside.unlink()
            blob.unlink(missing_ok=True)
            return False
        os.rename(beside, place)
        # Renaming a link to another link of the same file leaves both.
        beside.unlink(missing_ok=True)
        return True

    def _record(self, identity: str) -> Path:
        return self.models / f"{identity}.json"

    def _write_record(self, artifact: RemoteArtifact, hashes: dict[str, str]) -> Fetched:
        folder = self.models / artifact.identity
        seal = seal_of(folder)
        body = {
            "url": str(artifact.url),
            "bytes": artifact.bytes,
            "fingerprint": artifact.fingerprint,
            "seal": seal,
            "files": hashes,
        }
        replace(self._record(artifact.identity), json.dumps(body).encode())
        return Fetched(folder, str(artifact.url), artifact.bytes, artifact.fingerprint, seal)


class _Hashes:
    """The SHA-256 of the files that have been fetched, which survive the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.of: dict[str, str] = {}
        with contextlib.suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            self.of = {name: sha256 for sha256, _, name in (line.partition(" ") for line in lines)}

    def add(self, name: str, sha256: str) -> None:
        self.of[name] = sha256
        with self.path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{sha256} {name}\n")


def _key(file: RemoteFile) -> str:
    """Return the name under which the parts of a file are collected."""
    return file.sha256 or hashlib.sha256(f"{file.url}\n{file.tag} {file.bytes}".encode()).hexdigest()


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

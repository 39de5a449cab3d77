# SPDX-License-Identifier: Apache-2.0
"""Models in stores such as S3: which ones may be deployed, and where their files are on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.artifacts.fetching import Cancelled
from serving_proxy.artifacts.machine_store import Fetched, MachineStore
from serving_proxy.artifacts.manifest import NAME, read_artifact
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.timelines import FOLDER, TimelineCopy, timeline_folder
from serving_proxy.artifacts.uploading import Upload, upload
from serving_proxy.artifacts.urls import StoreUrl, is_url, parse_url
from serving_proxy.errors import DeniedError, ExistsError, InvalidError
from serving_proxy.gates.fingerprint import Fingerprint
from serving_proxy.records.model_cache import cache_folder
from serving_proxy.system.files import private_folder, replace

# How long copies of timelines and profiles stay that nothing uses.
_UNUSED_S = 600.0
_PROFILES = "profiles"
_MOST_PROFILE_BYTES = 64 * 1024 * 1024
_FILE = re.compile(r"file://(?:localhost)?(/.*)", re.DOTALL)


@dataclass(frozen=True)
class StoreOptions:
    """Options of stores.

    Attributes
    ----------
    store : StoreUrl or None
        Where finished models are put; None: nowhere.
    cache : Path or None
        The machine's content store; None: the folder `models` of the state directory.
    limit_bytes : int or None
        Largest size of the content store; None: as the disk permits.
    """

    store: StoreUrl | None = None
    cache: Path | None = None
    limit_bytes: int | None = None


class RemoteModels:
    """The stores that models come from and go to; used by several threads.

    Parameters
    ----------
    state_dir : Path
    options : StoreOptions
    roots : sequence of Path
        The `--model-root` folders; with them, models come only from there and from the model store.
    """

    def __init__(self, state_dir: Path, options: StoreOptions, roots: Sequence[Path] = ()) -> None:
        self.options = options
        self._state_dir = state_dir
        self._roots = tuple(roots)
        self._lock = threading.Lock()
        self._machine: MachineStore | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of the content store."""
        return cache_folder(self.options.cache, self._state_dir)

    @property
    def machine(self) -> MachineStore:
        """Return the content store of this machine, which is made when it is first needed."""
        with self._lock:
            if self._machine is None:
                self._machine = MachineStore(self.folder, self._state_dir, self.options.limit_bytes)
            return self._machine

    def roots(self) -> tuple[Path, ...]:
        """Return the folders that may contain the files of models; empty: everywhere."""
        return (*self._roots, self.folder.resolve()) if self._roots else ()

    def place(self, source: str) -> StoreUrl | None:
        """Return the URL of a model in a store; None: the source is a path of this machine.

        Raises
        ------
        InvalidError, DeniedError
            Its scheme is not supported, or it is outside of what the operator permits.
        """
        if not is_url(source) or self.local_path(source) != source:
            return None
        url = parse_url(source, "model")
        store = self.options.store
        if self._roots and (store is None or not store.contains(url)):
            allowed = "below --model-root" if store is None else f"below --model-root or --model-store {store}"
            raise DeniedError(f"model {source}: outside of the permitted places, expected one {allowed}")
        return url

    def base_place(self, base_path: str) -> StoreUrl | None:
        """Return the URL of a base directory in a store; None: it is a folder of this machine.

        A folder below a model store of files has artifacts with manifests.
        """
        store = self.options.store
        if store is not None and store.scheme == "file" and not is_url(base_path):
            url = StoreUrl("file", "", base_path.strip("/"))
            return url if store.contains(url) else None
        return self.place(base_path)

    def local_path(self, source: str) -> str:
        """Return the path of a `file://` URL, unless an artifact with a manifest is there; other sources unchanged."""
        found = _FILE.fullmatch(source)
        return found[1] if found and not Path(found[1], NAME).is_file() else source

    def stamp(self, url: StoreUrl) -> str:
        """Return a short text that changes if a file of a model changes; raise the errors of `MachineStore.fetch`."""
        return read_artifact(open_store(url), url).identity[:16]

    def fetch(self, url: StoreUrl, cancelled: Cancelled, progress: Callable[[int, int], None]) -> Fetched:
        """Fetch a model into the content store."""
        return self.machine.fetch(str(url), cancelled, progress)

    def put(
        self,
        name: str,
        number: int,
        folder: Path,
        found: Fingerprint,
        cancelled: Cancelled,
        progress: Callable[[int, int], None],
    ) -> str:
        """Put a finished model into the model store and return its URL.

        If other files are there under its number, its URL also contains its hash, so that neither replaces the other.
        """
        root = self.options.store
        assert root is not None
        url = root / name / str(number)
        try:
            upload(Upload(folder, found.sha256, root, url), cancelled, progress)
        except ExistsError:
            url = root / name / f"{number}-{found.sha256[:12]}"
            upload(Upload(folder, found.sha256, root, url), cancelled, progress)
        return str(url)

    @property
    def timelines(self) -> Path:
        """Return the folder of the copies of timelines."""
        return self.folder.resolve() / FOLDER

    def timeline(self, follow: str) -> str:
        """Return the folder of a timeline; one in a store is copied once, and from then on as long as it is followed.

        Raises
        ------
        InvalidError, DeniedError
            As for `place`; or a delta is damaged.
        UnavailableError, UnauthenticatedError, NotFoundError
            The store cannot be read.
        """
        url = self.place(follow)
        if url is None:
            return self.local_path(follow)
        _ = self.machine
        folder = timeline_folder(private_folder(self.timelines, "timeline"), url)
        TimelineCopy(folder, url).step()
        return str(folder)

    def profile(self, file: str) -> str:
        """Return the file of a profile; one in a store is copied under the name of its hash.

        Raises
        ------
        InvalidError, DeniedError
            As for `place`; or it is too large.
        UnavailableError, UnauthenticatedError, NotFoundError
            The store cannot be read.
        """
        url = self.place(file)
        if url is None:
            return self.local_path(file)
        data = bytes(open_store(url).read(url, 0, _MOST_PROFILE_BYTES + 1))
        if len(data) > _MOST_PROFILE_BYTES:
            raise InvalidError(f"profile {file}: more than {_MOST_PROFILE_BYTES} bytes, expected the file of a profile")
        copy = private_folder(self.machine.root / _PROFILES, "profile") / f"{hashlib.sha256(data).hexdigest()}.json"
        if not copy.exists():
            replace(copy, data)
        return str(copy)

    def retain(self, paths: Collection[Path]) -> None:
        """Name the models, timelines and profiles that are still needed; do nothing without a content store."""
        if self._machine is None and not self.folder.is_dir():
            return
        self.machine.retain(paths)
        for folder in self.timelines.glob("*/"):
            # A deployment that follows it may not be recorded yet.
            if folder not in paths and time.time() - folder.stat().st_mtime > _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)
        for copy in (self.folder.resolve() / _PROFILES).glob("*.json"):
            with contextlib.suppress(OSError):
                if copy in paths:
                    # Another proxy that has the same content store must not remove it.
                    os.utime(copy)
                elif time.time() - copy.stat().st_mtime > _UNUSED_S:
                    copy.unlink()


def known_fingerprint(fetched: Fetched) -> dict[Path, Fingerprint]:
    """Return what is known of a model's files without reading them again."""
    if fetched.sha256 is None:
        return {}
    return {fetched.path: Fingerprint(fetched.sha256, fetched.bytes, fetched.seal)}

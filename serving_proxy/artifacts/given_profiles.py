# SPDX-License-Identifier: Apache-2.0
"""Profiles that operators give with versions, in the model store: for machines that serve the same version.

profiles/given/SHA256/artifact.json   an artifact with one file, the profile, whose bytes are in `blobs`
profiles/given/models/HASH.json       the URL of a version in a store, which the name is made from, and its profile

A cleaner keeps the profiles of versions whose own manifest is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.uploading import Upload, upload
from serving_proxy.artifacts.urls import StoreUrl, is_url, parse_url
from serving_proxy.errors import InvalidError, NotFoundError
from serving_proxy.gates.fingerprint import fingerprint
from serving_proxy.system.files import read_regular

FOLDER = "profiles/given"
FILE = "profile.json"
MOST_BYTES = 64 * 1024 * 1024
_MODELS = "models"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_POINTER_BYTES = 65536


def put_profile(root: StoreUrl, model: str, file: Path) -> bool:
    """Upload the profile of a version, and return whether the store had another one or none before.

    Parameters
    ----------
    root : StoreUrl
        The model store.
    model : str
        URL of the version's files.
    file : Path

    Raises
    ------
    NotFoundError, InvalidError
        The file cannot be read.
    UnavailableError, UnauthenticatedError, DeniedError, ExhaustedError
        The store cannot be written to.
    """
    data = read_regular(file, MOST_BYTES, "the file of a profile")
    sha256 = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory(prefix="recprocessor-profile-") as folder:
        (Path(folder) / FILE).write_bytes(data)
        found = fingerprint(Path(folder), lambda: False, lambda done, total: None)
        upload(Upload(Path(folder), found.sha256, root, root / FOLDER / sha256))
    store, place = open_store(root), _pointer(root, model)
    if _named(store, place) == (model, sha256):
        return False
    store.put(place, json.dumps({"model": model, "profile": sha256}).encode())
    return True


def has_profile(root: StoreUrl, model: str) -> bool:
    """Return whether the store has a profile of a version; raise the errors of `put_profile`."""
    return _named(open_store(root), _pointer(root, model))[0] == model


def remove_profile(root: StoreUrl, model: str) -> None:
    """Forget which profile a version has; raise the errors of `put_profile`."""
    open_store(root).delete(_pointer(root, model))


def fetch_profile(root: StoreUrl, model: str, machine: MachineStore) -> Path | None:
    """Fetch the profile of a version, once for each machine; None: the store has none.

    Raises
    ------
    ProxyError
        The store cannot be read, or the profile in it is damaged.
    """
    _, sha256 = _named(open_store(root), _pointer(root, model))
    if sha256 == "":
        return None
    return machine.fetch(str(root / FOLDER / sha256)).path / FILE


def unneeded_profiles(store: Store, root: StoreUrl, keys: Collection[str]) -> dict[str, tuple[StoreUrl, ...]]:
    """Return the profiles of versions that are gone, with the objects that say what they are.

    Parameters
    ----------
    store : Store
    root : StoreUrl
        The model store.
    keys : collection of str
        The keys of all of its objects.
    """
    there, found = set(keys), dict[str, list[StoreUrl]]()
    needed = set[str]()
    prefix = (root / FOLDER).key
    for key in sorted(key for key in there if key.startswith(f"{prefix}/")):
        place = StoreUrl(root.scheme, root.bucket, key)
        name = key.removeprefix(f"{prefix}/").partition("/")[0]
        if _SHA256.fullmatch(name):
            found.setdefault(name, []).append(place)
        elif name == _MODELS:
            model, sha256 = _named(store, place)
            # Models in other places, and exports without a manifest, may still be there.
            if sha256 and not _is_gone(root, model, there):
                needed.add(sha256)
            elif sha256:
                found.setdefault(sha256, []).append(place)
    return {sha256: tuple(places) for sha256, places in found.items() if sha256 not in needed}


def _is_gone(root: StoreUrl, model: str, there: Collection[str]) -> bool:
    with contextlib.suppress(InvalidError):
        url = parse_url(model, "model")
        return root.contains(url) and not any(key.startswith(f"{url.key}/") for key in there)
    return True


def _pointer(root: StoreUrl, model: str) -> StoreUrl:
    return root / FOLDER / _MODELS / f"{hashlib.sha256(model.encode()).hexdigest()[:32]}.json"


def _named(store: Store, place: StoreUrl) -> tuple[str, str]:
    """Return a version and the hash of its profile; "" and "": there is no pointer, or it is damaged."""
    try:
        found = json.loads(bytes(store.read(place, 0, _MOST_POINTER_BYTES)))
        model, sha256 = found["model"], found["profile"]
    except (NotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return "", ""
    named = isinstance(model, str) and is_url(model) and isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    return (model, sha256) if named else ("", "")

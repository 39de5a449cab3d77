# SPDX-License-Identifier: Apache-2.0
"""The manifest of an artifact in a store: which files it has, and where their bytes are.

Files are objects named by their SHA-256 in a folder `blobs`, which artifacts share. The manifest is written last, so an
artifact without one is not there yet. A folder without a manifest, as TensorFlow exports it, is read as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import InvalidError, NotFoundError

NAME = "artifact.json"
#: Size of the parts that are checked, and fetched again, one by one.
PART_BYTES = 8 * 1024 * 1024
_FORMAT = 1
_GRAPHS = {"saved_model.pb", "saved_model.pbtxt"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class RemoteFile:
    """A file of an artifact.

    Attributes
    ----------
    name : str
        Its path in the model's folder.
    url : StoreUrl
    bytes : int
    sha256 : str or None
        None: not known before it has been read.
    parts : tuple of int
        CRC-32C of each part; empty: not known.
    tag : str or None
        Tag of the object when it was listed; None: objects named by their hash need none.
    """

    name: str
    url: StoreUrl
    bytes: int
    sha256: str | None = None
    parts: tuple[int, ...] = ()
    tag: str | None = None


@dataclass(frozen=True)
class RemoteArtifact:
    """An artifact in a store.

    Attributes
    ----------
    url : StoreUrl
    files : tuple of RemoteFile
    fingerprint : str or None
        SHA-256 over all files, as hosts compute it; None: the artifact has no manifest.
    identity : str
        64 hexadecimal digits that stand for this set of files.
    """

    url: StoreUrl
    files: tuple[RemoteFile, ...]
    fingerprint: str | None
    identity: str

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.bytes for file in self.files)


def read_artifact(store: Store, url: StoreUrl) -> RemoteArtifact:
    """Find out what an artifact consists of.

    Raises
    ------
    NotFoundError
        There is neither a manifest nor the graph of a SavedModel.
    InvalidError
        The manifest is damaged, or of a newer format.
    """
    try:
        data = bytes(store.read(url / NAME, 0, _MOST_BYTES))
    except NotFoundError as error:
        if "no bucket" in str(error):
            raise
        return _listed(store, url)
    return _parse(data, url)


def render(files: list[RemoteFile], fingerprint: str, blobs: str) -> bytes:
    """Return the bytes of a manifest.

    Parameters
    ----------
    files : list of RemoteFile
        With hashes.
    fingerprint : str
    blobs : str
        Path of the folder of the files' bytes, relative to the manifest's folder.
    """
    entries = [
        {"name": file.name, "bytes": file.bytes, "sha256": file.sha256, "crc32c": list(file.parts)} for file in files
    ]
    body = {"format": _FORMAT, "blobs": blobs, "part_bytes": PART_BYTES, "fingerprint": fingerprint, "files": entries}
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _listed(store: Store, url: StoreUrl) -> RemoteArtifact:
    """Describe a folder without a manifest."""
    prefix = f"{url.key}/" if url.key else ""
    entries = store.entries(url)
    files = tuple(
        RemoteFile(name, url / name, entry.bytes, tag=entry.tag)
        for entry in entries
        if (name := entry.key.removeprefix(prefix)) and not entry.key.endswith("/")
    )
    if not _GRAPHS & {file.name for file in files}:
        found = f"{len(files)} files, but neither {NAME} nor saved_model.pb" if files else "nothing"
        raise NotFoundError(
            f"{url}: {found} there, expected an artifact; one that is still being written has no {NAME} yet"
        )
    for file in files:
        _check_name(file.name, url)
    text = "".join(f"{file.name}\0{file.bytes} {file.tag}\n" for file in files)
    return RemoteArtifact(url, files, None, _hash(f"{url}\n{text}"))


def _parse(data: bytes, url: StoreUrl) -> RemoteArtifact:
    place = url / NAME
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or not isinstance(body.get("format"), int):
            raise ValueError("no format")
        if body["format"] != _FORMAT or body["part_bytes"] != PART_BYTES:
            raise InvalidError(
                f"{place}: format {body['format']} with parts of {body.get('part_bytes')} bytes, "
                f"expected format {_FORMAT} with {PART_BYTES}"
            )
        blobs = url / str(body["blobs"])
        files = tuple(_file(entry, blobs, url) for entry in body["files"])
        fingerprint = _sha256(body["fingerprint"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidError):
            raise
        raise InvalidError(f"{place}: damaged ({error}), expected a manifest; upload the artifact again") from error
    if len({file.name for file in files}) != len(files) or not files:
        raise InvalidError(f"{place}: {len(files)} files, some twice, expected each once; upload the artifact again")
    text = "".join(f"{file.name}\0{file.bytes} {file.sha256}\n" for file in sorted(files, key=lambda file: file.name))
    return RemoteArtifact(url, files, fingerprint, _hash(text))


def _file(entry: dict[str, Any], blobs: StoreUrl, url: StoreUrl) -> RemoteFile:
    sha256, size = _sha256(entry["sha256"]), entry["bytes"]
    parts = tuple(entry["crc32c"])
    if not isinstance(size, int) or size < 0 or len(parts) != -(-size // PART_BYTES):
        raise ValueError(f"{len(parts)} parts of {size} bytes")
    if not all(isinstance(part, int) for part in parts):
        raise ValueError("checksums that are no numbers")
    _check_name(str(entry["name"]), url)
    return RemoteFile(str(entry["name"]), blobs / sha256, size, sha256, parts)


def _check_name(name: str, url: StoreUrl) -> None:
    """Raise `InvalidError` if a file would lie outside of the model's folder."""
    if "\0" in name or any(part in {"", ".", ".."} for part in name.split("/")):
        raise InvalidError(f"{url}: file '{name[:200]!r}', expected a path within the artifact")


def _sha256(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError("no SHA-256")
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

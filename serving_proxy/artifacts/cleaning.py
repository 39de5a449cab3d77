# SPDX-License-Identifier: Apache-2.0
"""Find and remove blobs of a model store that no manifest names, while others upload into it.

The manifests of profiles count only while the versions that they were given with are there.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from serving_proxy.artifacts.given_profiles import unneeded_profiles
from serving_proxy.artifacts.manifest import NAME, read_artifact
from serving_proxy.artifacts.marks import ClaimedError, Marks
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.uploading import BLOBS
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import InvalidError, NotFoundError

log = logging.getLogger("serving_proxy.artifacts")

_BLOB = re.compile(r"[0-9a-f]{64}")
# Deciding about a blob takes seconds.
_CLAIM_S = 3600.0
_CONDITIONAL = {"s3", "gs", "az", "file"}


@dataclass(frozen=True)
class Unused:
    """A blob that no manifest names.

    Attributes
    ----------
    sha256 : str
    bytes : int
    since : float or None [s]
        When a cleaner saw that first; None: now.
    is_removed : bool
    """

    sha256: str
    bytes: int
    since: float | None
    is_removed: bool = False


@dataclass(frozen=True)
class Cleaned:
    """What a cleaner has found.

    Attributes
    ----------
    artifacts : int
        Number of manifests.
    used_bytes : int
        Size of the blobs that they name.
    unused : tuple of Unused
    """

    artifacts: int
    used_bytes: int
    unused: tuple[Unused, ...]


def clean_store(root: StoreUrl, age_s: float, now: float, removes: bool) -> Cleaned:
    """Mark blobs that no manifest names, and remove those that have been marked for long.

    Parameters
    ----------
    root : StoreUrl
        The model store.
    age_s : float [s]
        How long blobs must have been marked: longer than any upload takes.
    now : float [s]
        Time of the system clock.
    removes : bool
        False: nothing is written.

    Raises
    ------
    InvalidError
        A manifest is damaged or of a newer format, so that its blobs are not known; or the store has no conditional
        requests.
    UnavailableError, UnauthenticatedError, DeniedError
        The store cannot be read or written to; what was done until then is complete.
    """
    if root.scheme not in _CONDITIONAL:
        raise InvalidError(f"{root}: expected a store with conditional requests, such as s3://")
    store, blobs = open_store(root), root / BLOBS
    marks = Marks(store, root)
    # Blobs before manifests: what is uploaded meanwhile has a manifest that is found, or is not among these blobs.
    sizes = {
        name: entry.bytes
        for entry in store.entries(blobs)
        if _BLOB.fullmatch(name := entry.key.removeprefix(f"{blobs.key}/"))
    }
    keys = [entry.key for entry in store.entries(root)]
    profiles = unneeded_profiles(store, root, keys)
    gone = {place.key for places in profiles.values() for place in places}
    manifests = [key for key in keys if key.rpartition("/")[2] == NAME and key not in gone]
    used = set[str]()
    for key in manifests:
        place = StoreUrl(root.scheme, root.bucket, key.rpartition("/")[0])
        # Somebody may remove a manifest meanwhile.
        with contextlib.suppress(NotFoundError):
            used |= {file.url.name for file in read_artifact(store, place).files if blobs.contains(file.url)}
    marked = marks.names()
    unused = [Unused(name, sizes[name], marks.since(name) if name in marked else None) for name in sizes.keys() - used]
    if removes:
        marks.remove_claims(now - _CLAIM_S)
        for name in marked - {each.sha256 for each in unused}:
            # Whoever has claimed it takes the mark off.
            with contextlib.suppress(ClaimedError):
                marks.remove(name)
        unused = [_handled(each, marks, blobs, age_s, now, profiles.get(each.sha256, ())) for each in unused]
    unused.sort(key=lambda each: (-each.bytes, each.sha256))
    return Cleaned(len(manifests), sum(sizes[name] for name in used & sizes.keys()), tuple(unused))


def _handled(
    found: Unused, marks: Marks, blobs: StoreUrl, age_s: float, now: float, named_by: Iterable[StoreUrl]
) -> Unused:
    """Mark a blob, or remove it, and what names it, if it has been marked for long."""
    if found.since is None:
        marks.set(found.sha256, now)
        return found
    if now - found.since < age_s:
        return found
    try:
        # The run may have begun long ago, and old claims are removed.
        with marks.claimed(found.sha256, time.time()):
            # A publisher that needs it has taken the mark off.
            if marks.since(found.sha256) != found.since:
                return found
            # First what names it, so that nothing names a blob that is not there.
            for place in (*named_by, blobs / found.sha256):
                open_store(blobs).delete(place)
            marks.forget(found.sha256)
    except ClaimedError as error:
        log.warning("%s; the blob stays", error)
        return found
    log.info("removed %s", blobs / found.sha256, extra={"bytes": found.bytes})
    return Unused(found.sha256, found.bytes, found.since, True)

# SPDX-License-Identifier: Apache-2.0
"""URLs of artifacts: `s3://BUCKET/PATH`, `gs://BUCKET/PATH`, `hdfs://HOST/PATH`, `file:///PATH`."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from serving_proxy.errors import InvalidError

SCHEMES = ("s3", "gs", "az", "hdfs", "file")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_LISTED = ", ".join(f"{scheme}://" for scheme in SCHEMES)


@dataclass(frozen=True)
class StoreUrl:
    """A place in a store.

    Attributes
    ----------
    scheme : str
    bucket : str
        Bucket, or host of the file system; empty for files.
    key : str
        Path in the bucket, without a slash at its beginning or end.
    """

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> StoreUrl:
        """Return the place of a name below this one; `..` goes up, but not out of the bucket."""
        key = posixpath.normpath(posixpath.join("/", self.key, name)).strip("/")
        return StoreUrl(self.scheme, self.bucket, key)

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return PurePosixPath(self.key).name

    def contains(self, other: StoreUrl) -> bool:
        """Return whether another place is this one or below it."""
        if (self.scheme, self.bucket) != (other.scheme, other.bucket):
            return False
        return self.key in {"", other.key} or other.key.startswith(f"{self.key}/")


def is_url(text: str) -> bool:
    """Return whether a text is a URL of any scheme, and no path."""
    return _URL.fullmatch(text) is not None


def parse_url(text: str, named: str) -> StoreUrl:
    """Read a URL.

    Parameters
    ----------
    text : str
    named : str
        What the URL is, for messages.

    Raises
    ------
    InvalidError
        It is not a URL, or of a scheme that is not supported, or names no bucket.
    """
    found = _URL.fullmatch(text)
    if found is None or found[1].lower() not in SCHEMES:
        wanted = "a path, or a URL" if found else "a URL such as file:///mnt/models," if text[:1] in "/." else "a URL"
        raise InvalidError(f"{named} '{text[:300]}': expected {wanted} with one of {_LISTED}")
    scheme, bucket, key = found[1].lower(), found[2], found[3]
    if scheme == "file":
        if bucket not in {"", "localhost"}:
            raise InvalidError(f"{named} '{text[:300]}': host '{bucket}', expected file:///PATH")
        bucket = ""
    elif not bucket:
        raise InvalidError(f"{named} '{text[:300]}': no bucket, expected {scheme}://BUCKET/PATH")
    if "\0" in key or any(part in {".", ".."} for part in key.split("/")):
        raise InvalidError(f"{named} '{text[:300]!r}': expected a path without '.', '..' and zero bytes")
    return StoreUrl(scheme, bucket, posixpath.normpath(f"/{key}").strip("/"))

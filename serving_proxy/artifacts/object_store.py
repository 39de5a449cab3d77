# SPDX-License-Identifier: Apache-2.0
"""Stores in S3, Google Cloud Storage and Azure, read by obstore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from serving_proxy.artifacts.store import Data, Entry
from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import (
    DeniedError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    ProxyError,
    UnauthenticatedError,
    UnavailableError,
)

_PART_BYTES = 8 * 1024 * 1024
_CONNECT_S = 5
_REQUEST_S = 60.0
_MOST_SAID = 300
# Status of the response and the code in its XML, in obstore's messages.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# Credentials that the store does not know; a known user without a right gets AccessDenied.
_UNKNOWN = {
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "XAdminUserNotFound",
}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of this machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or an account of this machine",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or an identity of this machine",
}


class ObjectStore:
    """A bucket; the configuration and credentials are read from the usual environment variables.

    Retries are left to the caller, which knows how long to wait and what has been read already.

    Parameters
    ----------
    scheme, bucket : str
    request_s : float [s]
        Longest time of one request, with its body.
    """

    def __init__(self, scheme: str, bucket: str, request_s: float = _REQUEST_S) -> None:
        try:
            import obstore.store
        except ImportError as error:
            raise InvalidError(
                f"{scheme}://{bucket}: needs obstore, which is not installed; in a checkout: pip install '.[store]'"
            ) from error
        self._obstore = obstore
        self._exceptions = obstore.exceptions
        self._scheme = scheme
        options: dict[str, Any] = {
            "client_options": {
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=request_s),
                "allow_http": _endpoint(scheme).startswith("http:"),
            },
            "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        }
        root = StoreUrl(scheme, bucket, "")
        try:
            self._store = obstore.store.from_url(str(root).rstrip("/"), **options)
        except (self._exceptions.BaseError, ValueError) as error:
            raise InvalidError(f"{root}: {_first_line(error)}, expected a bucket") from error

    def entries(self, url: StoreUrl) -> list[Entry]:
        """List all objects below a place."""
        with self._errors(url):
            found = self._obstore.list(self._store, url.key or None).collect()
        entries = [Entry(item["path"], item["size"], item["e_tag"] or "") for item in found]
        return sorted(entries, key=lambda entry: entry.key)

    def folders(self, url: StoreUrl) -> list[str]:
        """List the folders directly below a place."""
        with self._errors(url):
            found = self._obstore.list_with_delimiter(self._store, url.key or None)
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def read(self, url: StoreUrl, start: int = 0, length: int | None = None, tag: str | None = None) -> Data:
        """Read bytes of an object."""
        options: Any = {} if length is None else {"range": (start, start + length)}
        if length is None and start:
            options["range"] = {"offset": start}
        if tag:
            options["if_match"] = tag
        with self._errors(url):
            return memoryview(self._obstore.get(self._store, url.key, options=options).buffer())

    def put(self, url: StoreUrl, data: bytes | Path) -> None:
        """Write an object; a large file is sent in parts, which become visible together."""
        with self._errors(url):
            self._obstore.put(self._store, url.key, data, chunk_size=_PART_BYTES)

    def create(self, url: StoreUrl, data: bytes) -> bool:
        """Write an object if there is none, by a conditional request."""
        try:
            with self._errors(url):
                self._obstore.put(self._store, url.key, data, mode="create")
        except self._exceptions.AlreadyExistsError:
            return False
        return True

    def delete(self, url: StoreUrl) -> None:
        """Delete an object, if it exists; other than S3, Google and Azure say that it does not."""
        try:
            with self._errors(url):
                self._obstore.delete(self._store, url.key)
        except NotFoundError as error:
            if "no bucket" in str(error):
                raise

    @contextmanager
    def _errors(self, url: StoreUrl) -> Iterator[None]:
        """Convert the library's errors into those of this package, except that an object exists already."""
        try:
            yield
        except self._exceptions.AlreadyExistsError:
            raise
        except (self._exceptions.BaseError, OSError, ValueError) as error:
            raise self._converted(url, error) from error

    def _converted(self, url: StoreUrl, error: Exception) -> ProxyError:
        text = str(error)
        status, code = _STATUS.search(text), _CODE.search(text)
        said = code[1] if code else f"HTTP status {status[1]}" if status else _first_line(error)
        if isinstance(error, self._exceptions.PreconditionError):
            return PreconditionError(f"{url}: replaced while it was read, expected an object that stays the same")
        if said in {"NoSuchBucket", "ContainerNotFound"}:
            return NotFoundError(f"{url}: no bucket '{url.bucket}' there, expected one that exists")
        credentials = _CREDENTIALS[self._scheme]
        if said in _UNKNOWN or isinstance(error, self._exceptions.UnauthenticatedError):
            return UnauthenticatedError(f"{url}: the store refuses the credentials ({said}), expected {credentials}")
        if isinstance(error, FileNotFoundError):
            return NotFoundError(f"{url}: not there, expected an object")
        if "169.254.169.254" in text or "metadata" in text:
            return UnauthenticatedError(f"{url}: no credentials found, expected {credentials}")
        if isinstance(error, self._exceptions.PermissionDeniedError) or (status and status[1] == "403"):
            return DeniedError(f"{url}: the store denies access ({said}), expected credentials with the right to it")
        if status and status[1].startswith("4") and status[1] not in {"408", "425", "429"}:
            return InvalidError(f"{url}: the store refuses the request ({said}), expected one that it accepts")
        return UnavailableError(f"{url}: the store does not answer ({said}), expected {_where(self._scheme)}")


def _endpoint(scheme: str) -> str:
    """Return the URL of the server if the environment sets it."""
    names = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "az": ("AZURE_STORAGE_ENDPOINT",)}
    return next((os.environ[name] for name in names.get(scheme, ()) if os.environ.get(name)), "")


def _where(scheme: str) -> str:
    endpoint = _endpoint(scheme)
    return f"a server at {endpoint} (AWS_ENDPOINT_URL)" if endpoint else "that this machine reaches it"


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:_MOST_SAID]

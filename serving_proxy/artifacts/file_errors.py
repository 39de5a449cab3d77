# SPDX-License-Identifier: Apache-2.0
"""Errors of file systems, as those of stores."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from serving_proxy.artifacts.urls import StoreUrl
from serving_proxy.errors import DeniedError, ExhaustedError, NotFoundError, UnavailableError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def file_errors(url: StoreUrl) -> Iterator[None]:
    """Convert errors of the block, which name a path, into errors that name the URL."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{url}: not there, expected a file") from error
    except PermissionError as error:
        raise DeniedError(f"{url}: {error.strerror or error}, expected the right to it") from error
    except OSError as error:
        kind = ExhaustedError if error.errno in _FULL else UnavailableError
        raise kind(f"{url}: {error.strerror or error}, expected a file system that can be used") from error

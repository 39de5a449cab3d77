# SPDX-License-Identifier: Apache-2.0
"""Restrict models to places below `--model-root`, after every link has been followed.

Messages reveal nothing about places outside: not whether anything exists there, and not where a link leads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from serving_proxy.errors import DeniedError, InvalidError, NotFoundError
from serving_proxy.gates.fingerprint import files_of


def resolved(path: str | Path, roots: Sequence[Path], named: str = "model") -> Path:
    """Return a path with its links followed.

    Parameters
    ----------
    path : path
        Absolute.
    roots : sequence of Path
        Resolved folders, one of which must contain it; empty: every place is permitted.

    Raises
    ------
    InvalidError, NotFoundError, DeniedError
        It is relative, does not exist, or leads out of the roots.
    """
    text = str(path)
    if not text.startswith("/") or "\0" in text:
        raise InvalidError(f"{named} {text!r}: expected an absolute path")
    _check_inside(_real(text), text, roots, named)
    try:
        place = Path(text).resolve(strict=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"{named} {text}: not there, expected a folder that the proxy can read") from error
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a loop of links"
        raise InvalidError(f"{named} {text}: {reason}, expected a folder that the proxy can read") from error
    _check_inside(place, text, roots, named)
    return place


def check_writable(path: str, roots: Sequence[Path], named: str) -> None:
    """Check that a place that hosts write to, which need not exist yet, is below the roots.

    Raises
    ------
    InvalidError, DeniedError
    """
    if not roots:
        return
    if not path.startswith("/") or "\0" in path:
        raise InvalidError(f"{named} {path!r}: expected an absolute path")
    _check_inside(_real(path), path, roots, named)


def check_tree(folder: Path, roots: Sequence[Path]) -> None:
    """Check that no file of a model leads out of the roots by a link, and that all are of a kind that can be read to
    its end.

    Raises
    ------
    DeniedError, InvalidError
    """
    for path in files_of(folder):
        _check_inside(_real(str(path)), str(path), roots, "file")
        try:
            kind = path.stat().st_mode
        except (OSError, RuntimeError) as error:
            if not roots:
                continue
            raise InvalidError(f"{path}: a broken link, expected a file") from error
        if not stat.S_ISREG(kind):
            raise InvalidError(f"{path}: a named pipe, socket or device, expected regular files")


def _real(path: str) -> Path:
    """Follow the links of a path as far as it exists, and keep the rest as it is written."""
    return Path(os.path.realpath(path))


def _check_inside(place: Path, text: str, roots: Sequence[Path], named: str) -> None:
    if roots and not any(place == root or root in place.parents for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise DeniedError(
            f"{named} {text}: outside of the permitted folders, expected a path below --model-root {allowed}"
        )

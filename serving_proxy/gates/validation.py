# SPDX-License-Identifier: Apache-2.0
"""The checks of a model in one go, on a thread of their own: place, files, signature, hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.errors import InvalidError, PreconditionError
from serving_proxy.gates.fingerprint import Fingerprint
from serving_proxy.gates.hashing import fingerprint_apart
from serving_proxy.gates.paths import check_tree, resolved
from serving_proxy.gates.saved_model import Signatures, differences, read_signatures

_MOST_NAMED = 6


@dataclass(frozen=True)
class Validated:
    """What was found.

    Attributes
    ----------
    path : Path
        The folder, links followed.
    signatures : Signatures
    files : Fingerprint
    """

    path: Path
    signatures: Signatures
    files: Fingerprint


def validate(
    source: str,
    roots: Sequence[Path],
    expected: Signatures | None,
    cancelled: Callable[[], bool],
    told: Callable[[int, int], None],
    cpus: str | None = None,
) -> Validated:
    """Check a model.

    Parameters
    ----------
    source : str
        Its folder.
    roots : sequence of Path
        Where models may be; none: everywhere.
    expected : Signatures or None
        Those of the baseline, which it has to have.
    cancelled, told
        As `fingerprint` takes them.
    cpus : str, optional
        Where large files are read, else in the idle time of all.

    Raises
    ------
    InvalidError, NotFoundError, DeniedError, PreconditionError, CancelledError
    """
    path = resolved(source, roots)
    if not path.is_dir():
        raise InvalidError(f"model {source}: a file, expected the folder of a SavedModel")
    check_tree(path, roots)
    signatures = read_signatures(path)
    if expected is not None:
        check_signatures(source, expected, signatures)
    return Validated(path, signatures, fingerprint_apart(path, cancelled, told, cpus))


def check_signatures(source: str, expected: Signatures, found: Signatures) -> None:
    """Raise `PreconditionError`, with the names, if a model's signature is not the baseline's."""
    wrong = differences(expected, found)
    if wrong:
        more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        listed = "; ".join(wrong[:_MOST_NAMED]) + more
        raise PreconditionError(
            f"model {source}: {listed}, expected the baseline's signature (--other-signature permits another)"
        )

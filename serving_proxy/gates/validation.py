# SPDX-License-Identifier: Apache-2.0
"""All checks of a model, run on a thread: place, files, signature, ops, hash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.errors import InvalidError, PreconditionError
from serving_proxy.gates.fingerprint import Fingerprint
from serving_proxy.gates.hashing import fingerprint_apart
from serving_proxy.gates.ops import check_ops
from serving_proxy.gates.paths import check_tree, resolved
from serving_proxy.gates.saved_model import Signatures, differences, own_ops, read_meta_graph, signatures_of

_MOST_NAMED = 6


@dataclass(frozen=True)
class Validated:
    """The result of the checks.

    Attributes
    ----------
    path : Path
        The folder, links followed.
    signatures : Signatures
    files : Fingerprint
    ops : tuple of str
        The ops that access more than the graph, all of which are allowed.
    own_ops : tuple of str
        The ops that only hosts have, and no TensorFlow.
    """

    path: Path
    signatures: Signatures
    files: Fingerprint
    ops: tuple[str, ...] = ()
    own_ops: tuple[str, ...] = ()


def validate(
    source: str,
    roots: Sequence[Path],
    expected: Signatures | None,
    cancelled: Callable[[], bool],
    progress: Callable[[int, int], None],
    cpus: str | None = None,
    allowed_ops: Collection[str] = (),
    known: Mapping[Path, Fingerprint] | None = None,
) -> Validated:
    """Check a model.

    Parameters
    ----------
    source : str
        Its folder.
    roots : sequence of Path
        Folders that may contain models; empty: everywhere.
    expected : Signatures or None
        The baseline's signatures, which the model must have.
    cancelled, progress
        As for `fingerprint`.
    cpus : str, optional
        CPUs on which large files are read; by default in the idle time of all.
    allowed_ops : collection of str
        Ops that may be reached although they touch files, the process or the network.
    known : mapping of Path to Fingerprint, optional
        As for `fingerprint_apart`.

    Raises
    ------
    InvalidError, NotFoundError, DeniedError, PreconditionError, CancelledError
    """
    path = resolved(source, roots)
    if not path.is_dir():
        raise InvalidError(f"model {source}: a file, expected the folder of a SavedModel")
    check_tree(path, roots)
    graph = read_meta_graph(path)
    signatures = signatures_of(path, graph)
    if expected is not None:
        check_signatures(source, expected, signatures)
    ops = check_ops(source, graph, allowed_ops)
    files = fingerprint_apart(path, cancelled, progress, cpus, known)
    return Validated(path, signatures, files, ops, own_ops(graph))


def check_signatures(source: str, expected: Signatures, found: Signatures) -> None:
    """Raise `PreconditionError`, with the names, if a model's signatures do not match the baseline's."""
    wrong = differences(expected, found)
    if wrong:
        more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        listed = "; ".join(wrong[:_MOST_NAMED]) + more
        raise PreconditionError(
            f"model {source}: {listed}, expected the baseline's signature (--other-signature permits another)"
        )

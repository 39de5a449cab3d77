# SPDX-License-Identifier: Apache-2.0
"""Find libprocessor and load its ops into TensorFlow: once per process, by one real path.

The library is found without importing the `processor` package; a second copy of it would register every op twice.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import mmap
import os
import re
import site
import sys
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.graph import Graph, is_native

VARIABLE = "PROCESSOR_LIBRARY"
NAME = "libprocessor.so"
#: The version of docs/fused_ops.md that added an op, if not the first; an artifact's manifest has the version it needs.
_SINCE = {"RecFieldOuter": 2, "RecHeadAttention": 2, "RecRecurrentLayer": 2, "RecLiveModel": 4}
#: The version that added int8 to RecDenseTower.
_INT8_SINCE = 3

Libraries = str | Path | Sequence[str | Path] | None
"""One library of ops, several, or None if none is given."""

# No op of TensorFlow has such a name: Reciprocal, RecordInput and Recv continue with a small letter.
_OURS = re.compile("Rec[A-Z]")
_ONEDNN = "libdnnl.so.3"

_lock = threading.Lock()
_loaded: Path | None = None
_others: list[Path] = []


@dataclass(frozen=True)
class LibraryInfo:
    """Information that a library reports about itself.

    Attributes
    ----------
    path : str
    version : str or None
        None: a library that contains only kernels does not report its version.
    precisions : tuple of str
        The precisions in which it can compute on this CPU.
    """

    path: str
    version: str | None
    precisions: tuple[str, ...] = ()


def ops_version(ops: Iterable[str], int8: bool = False) -> int:
    """Return the version of libprocessor's ops that a library must have to run these, in int8 if `int8` is set."""
    return max([_INT8_SINCE if int8 else 1, *(_SINCE.get(op, 1) for op in ops)])


def is_ours(op: str) -> bool:
    """Return whether an op belongs to libprocessor; docs/fused_ops.md lists its ops."""
    return _OURS.match(op) is not None


def our_ops(graph: Graph) -> list[str]:
    """Return the names of the ops of libprocessor that a graph and its functions use."""
    ops = {node.op for node in graph} | {node.op for function in graph.library.values() for node in function.node_def}
    return sorted(op for op in ops if is_ours(op) and op not in graph.library)


def find_library(path: str | Path | None = None) -> Path:
    """Return the real path of the library.

    The first of these that is given is used: `path`, the variable PROCESSOR_LIBRARY, the file next to the installed
    `processor` package.

    Raises
    ------
    UnreadableError
        This is not a file; the message lists the paths that were tried.
    """
    variable, packaged = os.environ.get(VARIABLE), _packaged_library()
    if path is not None:
        candidate: Path | None = Path(path)
    elif variable:
        candidate = Path(variable)
    else:
        candidate = packaged
    if candidate is not None and candidate.is_file():
        return Path(os.path.realpath(candidate))
    tried = (
        f"--op-library: {path if path is not None else 'not given'}; {VARIABLE}: {variable or 'not set'}; "
        f"beside the package processor: {packaged or 'not installed'}"
    )
    found = f"no file {candidate}" if candidate is not None else "not found"
    raise UnreadableError(f"{NAME}: {found}, expected a library of TensorFlow ops ({tried})")


def load_library(path: str | Path | None = None) -> Path:
    """Load the library into TensorFlow, unless it is loaded already, and return its real path.

    Raises
    ------
    UnreadableError
        The library does not exist, is not a library of ops, or was built for another TensorFlow, or another one is
        loaded already.
    """
    global _loaded
    with _lock:
        if _loaded is not None and path is None:
            return _loaded
        real = find_library(path)
        if _loaded is None:
            _load_into_tensorflow(real)
            _loaded = real
        elif real != _loaded:
            raise UnreadableError(f"{real}: {_loaded} is loaded already, expected one op library in a process")
        return _loaded


def load_libraries(given: Libraries) -> None:
    """Load libraries of ops into TensorFlow: libprocessor, and others with custom ops of a model.

    Raises
    ------
    UnreadableError
        A library does not exist or is not a library of ops, or two of them are libprocessor.
    """
    paths = [given] if isinstance(given, (str, Path)) else given or ()
    for path in paths:
        if not Path(path).is_file() or _is_libprocessor(Path(path)):
            load_library(path)
            continue
        real = Path(os.path.realpath(path))
        with _lock:
            if real not in _others:
                _load_into_tensorflow(real)
                _others.append(real)


def loaded_libraries() -> list[Path]:
    """Return the loaded libraries of ops, including libprocessor."""
    return [*([] if _loaded is None else [_loaded]), *_others]


def _is_libprocessor(path: Path) -> bool:
    """Return whether a library registers the ops of libprocessor."""
    if not path.stat().st_size:
        return True
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"RecInitializeEmbeddingTable") >= 0


def load_for(graph: Graph) -> None:
    """Load the library for a graph that uses its ops, if it can be found.

    If not, the export's descriptions of the ops are used: the model can be inspected, but cannot be run.
    """
    if _loaded is None and our_ops(graph):
        try:
            place = find_library()
        except UnreadableError:
            return
        load_library(place)


def require_for(graph: Graph, path: Path) -> None:
    """Check that every op of libprocessor that a graph uses is available, so that TensorFlow can run the model.

    Raises
    ------
    UnreadableError
        There is no library, or it is older than the model.
    """
    ops = our_ops(graph)
    if not ops:
        return
    try:
        place = load_library()
    except UnreadableError as error:
        raise UnreadableError(f"{path}: it uses {', '.join(ops)}; {error}") from error
    missing = [op for op in ops if not is_native(op)]
    if missing:
        raise UnreadableError(f"{path}: op {missing[0]} is not in {place}, expected a newer libprocessor")


def library_info(path: Path) -> LibraryInfo:
    """Return the path of a loaded library, with the version that it reports."""
    try:
        ask = ctypes.CDLL(str(path)).processor_build_info
    except (OSError, AttributeError):
        return LibraryInfo(str(path), None)
    ask.restype = ctypes.c_char_p
    said = json.loads(ask())
    return LibraryInfo(str(path), said["version"], tuple(said.get("precisions", ())))


def _packaged_library() -> Path | None:
    try:
        spec = importlib.util.find_spec("processor")
    except ValueError:  # sys.modules has a `processor` that was not created by an import
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / NAME


def _load_into_tensorflow(real: Path) -> None:
    import tensorflow as tf

    try:
        try:
            tf.load_op_library(str(real))
        except tf.errors.OpError as error:
            if _ONEDNN not in error.message or not _open_onednn():
                raise
            tf.load_op_library(str(real))
    except (tf.errors.OpError, RuntimeError) as error:
        said = str(getattr(error, "message", None) or error).replace(f"{real}: ", "").strip()
        if "undefined symbol" in said or "libtensorflow" in said:
            raise UnreadableError(
                f"{real}: {said}, expected a library that was built against TensorFlow {tf.__version__}, which is "
                "installed"
            ) from error
        raise UnreadableError(f"{real}: {said}, expected a library of TensorFlow ops") from error


def _open_onednn() -> bool:
    """Open the library of the oneDNN package in <prefix>/lib, which the RUNPATH does not contain."""
    for prefix in (sys.prefix, sysconfig.get_path("data"), site.getuserbase()):
        candidate = Path(prefix, "lib", _ONEDNN)
        if candidate.is_file():
            ctypes.CDLL(str(candidate))
            return True
    return False

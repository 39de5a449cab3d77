# SPDX-License-Identifier: Apache-2.0
"""Open libprocessor.so: on first use, once, and only if it matches the declarations."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

from processor import _tensorflow
from processor._ffi import TENSORFLOW_VERSION, ffi
from processor.errors import FailedPreconditionError, NotFoundError

_VARIABLE = "PROCESSOR_LIBRARY"
_PACKAGED = Path(__file__).with_name("libprocessor.so")
# This small library is in the same folder and contains only the rules of desired.json.
_RULES = "libprocessor_rules.so"
# By default TensorFlow logs every model that it reads and how it was compiled; warnings and errors stay enabled.
_LOG_LEVEL, _WARNINGS = "TF_CPP_MIN_LOG_LEVEL", "1"
# LOCAL hides its symbols from the rest of the process; NODELETE because TensorFlow's threads outlive a dlclose.
_FLAGS = ffi.RTLD_NOW | ffi.RTLD_LOCAL | ffi.RTLD_NODELETE
_ONEDNN = "libdnnl.so.3"

_lock = threading.Lock()
_lib: Any = None
_rules: Any = None
_loaded_from: Path | None = None


def library_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the real path of the library that would be loaded.

    The first one that is set counts: `path`, the variable PROCESSOR_LIBRARY, the file in this package.

    Raises
    ------
    NotFoundError
        If that path is not a file; the message lists the paths that were tried.
    """
    if path is not None:
        origin, candidate = "argument", Path(path)
    elif variable := os.environ.get(_VARIABLE):
        origin, candidate = _VARIABLE, Path(variable)
    else:
        origin, candidate = "package", _PACKAGED
    if candidate.is_file():
        return candidate.resolve()
    tried = {
        "argument": "not given" if path is None else str(path),
        _VARIABLE: os.environ.get(_VARIABLE) or "not set",
        "package": str(_PACKAGED) if origin == "package" else f"{_PACKAGED} (not searched)",
    }
    listing = "; ".join(f"{name}: {value}" for name, value in tried.items())
    raise NotFoundError(f"libprocessor.so: no file {candidate}, expected the library ({listing})")


def load_library(path: str | os.PathLike[str] | None = None) -> None:
    """Load the library now instead of at first use, optionally from another path.

    Parameters
    ----------
    path : path-like, optional
        The library; by default PROCESSOR_LIBRARY, otherwise the file in this package.

    Raises
    ------
    NotFoundError
        If there is no such file.
    FailedPreconditionError
        If another library is already loaded, TensorFlow is missing or has another version, or the library is not the
        one that this package was made for.
    """
    global _lib, _loaded_from
    with _lock:
        if _lib is not None:
            if path is not None and library_path(path) != _loaded_from:
                raise FailedPreconditionError(
                    f"libprocessor.so: {_loaded_from} is already loaded, expected no library before {path}"
                )
            return
        real = library_path(path)
        _lib = _open(real)
        _loaded_from = real


def get_lib() -> Any:
    """Return the loaded library; load it if necessary."""
    if _lib is None:
        load_library()
    return _lib


def get_rules() -> Any:
    """Return a library that has `processor_desired_check`: the small one, which loads faster and uses less memory.

    The whole library is used if it is already loaded, or if its folder does not contain the small one.

    Raises
    ------
    NotFoundError, FailedPreconditionError
        For the same reasons as `load_library`.
    """
    global _rules
    if _lib is not None:
        return _lib
    with _lock:
        if _rules is None:
            path = Path(os.environ.get(_VARIABLE) or _PACKAGED).with_name(_RULES)
            if path.is_file():
                _rules = _open_rules(path.resolve())
    return get_lib() if _rules is None else _rules


def _open_rules(path: Path) -> Any:
    os.environ.setdefault(_LOG_LEVEL, _WARNINGS)
    _tensorflow.open_libraries(path, _FLAGS, (_tensorflow.FRAMEWORK,))
    try:
        lib = ffi.dlopen(str(path), _FLAGS)
        _check_version(lib, path)
    except (OSError, ffi.error) as error:
        raise FailedPreconditionError(
            f"library {path}: {error}, expected one built against TensorFlow {TENSORFLOW_VERSION}"
        ) from error
    return lib


def _open(path: Path) -> Any:
    os.environ.setdefault(_LOG_LEVEL, _WARNINGS)
    _tensorflow.open_libraries(path, _FLAGS)
    try:
        lib = _dlopen(path)
        _check_abi(lib, path)
    except (OSError, ffi.error) as error:
        raise FailedPreconditionError(
            f"library {path}: {error}, expected libprocessor built against TensorFlow {TENSORFLOW_VERSION}"
        ) from error
    return lib


def _dlopen(path: Path) -> Any:
    try:
        return ffi.dlopen(str(path), _FLAGS)
    except OSError as error:
        if _ONEDNN not in str(error):
            raise
    # The oneDNN package installs into <prefix>/lib, which the RUNPATH does not cover if site-packages lies elsewhere.
    for prefix in (sys.prefix, sysconfig.get_path("data"), site.getuserbase()):
        candidate = Path(prefix, "lib", _ONEDNN)
        if candidate.is_file():
            ffi.dlopen(str(candidate), _FLAGS)
            break
    return ffi.dlopen(str(path), _FLAGS)


def struct_sizes() -> dict[str, int]:
    """Return the size in bytes of every struct in the declarations that is not opaque."""
    sizes = {}
    for name in ffi.list_types()[1]:
        try:
            sizes[name] = ffi.sizeof(f"struct {name}")
        except ffi.error:
            continue
    return sizes


def _check_version(lib: Any, path: Path) -> None:
    ours: int = ffi.integer_const("PROCESSOR_ABI_VERSION")
    theirs: int = lib.processor_abi_version()
    if theirs >> 16 != ours >> 16 or theirs & 0xFFFF < ours & 0xFFFF:
        raise FailedPreconditionError(
            f"library {path}: ABI {format_abi(theirs)}, expected {format_abi(ours)} or a later {ours >> 16}.x"
        )


def _check_abi(lib: Any, path: Path) -> None:
    _check_version(lib, path)
    # No other check detects this: cffi silently accepts a struct of the wrong size.
    for name, size in struct_sizes().items():
        found = lib.processor_sizeof(name.encode())
        if found != size:
            raise FailedPreconditionError(f"library {path}: {name} has {found} bytes, expected {size}")


def format_abi(version: int) -> str:
    """Return an ABI version as text, for example "1.0"."""
    return f"{version >> 16}.{version & 0xFFFF}"

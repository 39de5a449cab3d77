# SPDX-License-Identifier: Apache-2.0
"""Find the installed TensorFlow and open its libraries without importing it: an import takes seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processor._ffi import TENSORFLOW_VERSION, ffi
from processor.errors import FailedPreconditionError

# In the order in which they must be opened: the second library needs the first.
FRAMEWORK = "libtensorflow_framework.so.2"
LIBRARIES = (FRAMEWORK, "libtensorflow_cc.so.2")
_DISTRIBUTIONS = ("tensorflow-cpu", "tensorflow")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _what_to_do(built: str = TENSORFLOW_VERSION) -> str:
    return f"pip install 'tensorflow-cpu=={_minor(built)}.*'"


def package_folder() -> Path | None:
    """Return the folder of the installed package, or None."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except ValueError:  # a `tensorflow` in sys.modules that was not made by an import
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def installed_versions() -> dict[str, str]:
    """Return the installed distributions of TensorFlow, with their versions."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def check_versions(versions: dict[str, str], built: str = TENSORFLOW_VERSION) -> None:
    """Check that the installed TensorFlow has the minor version that the library was built against.

    Parameters
    ----------
    versions : dict of str to str
        See `installed_versions`.
    built : str
        Version that the library was built against; the minor version must be the same.

    Raises
    ------
    FailedPreconditionError
        If the minor version differs; the message says what to do. Without this check, a symbol would be undefined.
    """
    for name, version in versions.items():
        if _minor(version) != _minor(built):
            raise FailedPreconditionError(
                f"TensorFlow: {name} {version} is installed, expected {_minor(built)}, which libprocessor was built"
                f" against: {_what_to_do(built)}"
            )
    if len(versions) > 1:
        both = " and ".join(f"{name} {version}" for name, version in versions.items())
        warnings.warn(
            f"TensorFlow: {both} are installed and own the same files, expected one of them:"
            f" pip uninstall {' '.join(versions)}, then {_what_to_do(built)}",
            RuntimeWarning,
            stacklevel=2,
        )


def open_libraries(library: Path, flags: int, names: Sequence[str] = LIBRARIES) -> list[Any]:
    """Open TensorFlow's libraries for `library`, unless it finds them through its RUNPATH.

    Parameters
    ----------
    library : Path
        libprocessor.so, a real path. Its RUNPATH leads to `../tensorflow`.
    flags : int
        For dlopen.
    names : sequence of str
        Libraries that it needs.

    Returns
    -------
    list of cdata
        The opened libraries.

    Raises
    ------
    FailedPreconditionError
        If TensorFlow is not installed or has another minor version.
    """
    beside = library.parent.parent / "tensorflow"
    installed = package_folder()
    has_own = all((beside / name).is_file() for name in names)
    if has_own and (installed is None or not beside.samefile(installed)):
        return []  # an unpacked archive contains the TensorFlow that it was built against
    if installed is None:
        raise FailedPreconditionError(
            f"TensorFlow: not installed, expected tensorflow-cpu {_minor(TENSORFLOW_VERSION)}: {_what_to_do()}"
        )
    check_versions(installed_versions())
    if has_own:
        return []
    try:
        return [ffi.dlopen(str(installed / name), flags) for name in names]
    except OSError as error:
        raise FailedPreconditionError(f"TensorFlow: {error}, expected a complete package: {_what_to_do()}") from error

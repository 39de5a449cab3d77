# SPDX-License-Identifier: Apache-2.0
"""Load a SavedModel with TensorFlow's library alone, without its Python package, and print the memory of this process.

    python -m load_tests.hosts.tensorflow_alone MODEL

Prints the resident memory in MB, with the mapped parts of libraries. Hosts cannot be smaller than this process.
"""

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import Any

from load_tests.hosts.memory import memory_of

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")


def open_tensorflow() -> ctypes.CDLL:
    """Open the library of the installed package, with the types of the functions that `load` calls."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("TensorFlow: not installed, expected tensorflow-cpu")
    folder = Path(next(iter(spec.submodule_search_locations)))
    *_, library = (ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES)
    for name in ("TF_NewStatus", "TF_NewSessionOptions", "TF_NewGraph", "TF_LoadSessionFromSavedModel"):
        getattr(library, name).restype = ctypes.c_void_p
    library.TF_Message.restype = ctypes.c_char_p
    return library


def load(library: Any, model: str) -> None:
    """Load a SavedModel; the session stays until the process ends.

    Raises
    ------
    RuntimeError
        If it cannot be loaded.
    """
    status, options, graph = (
        ctypes.c_void_p(make()) for make in (library.TF_NewStatus, library.TF_NewSessionOptions, library.TF_NewGraph)
    )
    tags = (ctypes.c_char_p * 1)(b"serve")
    library.TF_LoadSessionFromSavedModel(options, None, model.encode(), tags, 1, graph, None, status)
    if library.TF_GetCode(status) != 0:
        raise RuntimeError(f"{model}: {library.TF_Message(status).decode()}")


if __name__ == "__main__":
    load(open_tensorflow(), sys.argv[1])
    print(memory_of()["resident"] / 1e6)

# SPDX-License-Identifier: Apache-2.0
"""Write TensorFlow's message definitions in the form that protoc reads: ``python descriptors.py OUT.pb``.

The TensorFlow wheel has its ``.proto`` files only as generated code. The generated Python modules hold the definitions
whole, so a ``FileDescriptorSet`` of them stands in for the files (``protoc --descriptor_set_in``).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOTS = (
    "tensorflow.core.framework.tensor_pb2",
    "tensorflow.core.example.example_pb2",
    "tensorflow.core.protobuf.meta_graph_pb2",
)


def main(path: str) -> None:
    """Write the files of `TensorProto`, `Example` and `SignatureDef`, and of all that they import, to ``path``."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("TensorFlow: not installed, expected beside this interpreter")
    # A package without its __init__ takes milliseconds to import; TensorFlow takes seconds.
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = package

    written: dict[str, None] = {}
    result = FileDescriptorSet()

    def add(descriptor: FileDescriptor) -> None:
        if descriptor.name in written:
            return
        for dependency in descriptor.dependencies:
            add(dependency)
        written[descriptor.name] = None
        descriptor.CopyToProto(result.file.add())

    for root in ROOTS:
        add(importlib.import_module(root).DESCRIPTOR)
    Path(path).write_bytes(result.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])

# SPDX-License-Identifier: Apache-2.0
"""Write TensorFlow's message definitions for protoc: ``python tools/tensorflow_descriptors.py OUT.binpb``.

The TensorFlow wheel has its ``.proto`` files only as generated code. The generated Python modules hold the definitions
whole, so a ``FileDescriptorSet`` of them stands in for the files (``protoc --descriptor_set_in``). It stands in for
protos/tensorflow as well: C++ code that is generated from our files must use the messages of TensorFlow in the same
process, so those files only import TensorFlow's here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

# File of protos/tensorflow -> the modules that have its messages.
MODULES = {
    "error_codes.proto": ("tensorflow.core.protobuf.error_codes_pb2",),
    "tensorflow.proto": (
        "tensorflow.core.framework.tensor_pb2",
        "tensorflow.core.example.example_pb2",
        "tensorflow.core.protobuf.meta_graph_pb2",
    ),
}


def main(path: str) -> None:
    """Write the files in `MODULES`, and all that they import, to ``path``."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("TensorFlow: not installed, expected in the environment of this interpreter")
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

    for name, modules in MODULES.items():
        imported = [importlib.import_module(module).DESCRIPTOR for module in modules]
        for descriptor in imported:
            add(descriptor)
        names = [descriptor.name for descriptor in imported]
        result.file.add(name=name, syntax="proto3", dependency=names, public_dependency=range(len(names)))
    Path(path).write_bytes(result.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])

# SPDX-License-Identifier: Apache-2.0
"""Write the descriptors that Python and Go read instead of the files in protos/.

python tools/make_protos.py [--check]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
SERVICES = ("error_codes", "inference", "tensorflow", "tensorflow_serving")
# Each package has a file of its own, because the packages do not import each other.
MESSAGES = {
    "serving_proxy/messages/messages.binpb": ("batching_parameters", "inference", "saved_model", "tensorflow_serving"),
    "graph_tools/verification/messages.binpb": ("predict", "prediction_log"),
}
# What server reflection of the Python and the Go host publishes. Go can only embed files of its own folder.
PUBLISHED = ("serving_proxy/messages/services.binpb", "libprocessor/go/cmd/recprocessor-host/services.binpb")
# Types of configurations that are not published, nor the fields that have them: hosts do not apply them.
UNPUBLISHED = {"LogCollectorConfig", "LoggingConfig", "ModelType", "SamplingConfig"}


def file_descriptors(stems: tuple[str, ...]) -> bytes:
    """Return a FileDescriptorSet of these files of protos/ and of all that they import."""
    beside = Path(sys.executable).with_name("protoc")
    protoc = str(beside) if beside.is_file() else shutil.which("protoc")
    if protoc is None:
        raise FileNotFoundError("protoc: not found, expected it in PATH or next to Python")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set.binpb")
        paths = (f"--proto_path={PROTOS}", f"--proto_path={PROTOS / 'tensorflow'}")
        names = [f"{stem}.proto" for stem in stems]
        subprocess.run([protoc, *paths, f"--descriptor_set_out={out}", "--include_imports", *names], check=True)
        return out.read_bytes()


def published_descriptors() -> bytes:
    """Return the FileDescriptorSet of the services, without the types in `UNPUBLISHED`."""
    files = FileDescriptorSet.FromString(file_descriptors(SERVICES))
    for file in files.file:
        for message in file.message_type:
            _remove(message.field, [field.type_name.rpartition(".")[2] for field in message.field])
        for types in (file.message_type, file.enum_type):
            _remove(types, [declared.name for declared in types])
    return bytes(files.SerializeToString())


def _remove(elements: object, names: list[str]) -> None:
    """Remove the elements of a repeated field whose name is in `UNPUBLISHED`."""
    for index in reversed(range(len(names))):
        if names[index] in UNPUBLISHED:
            del elements[index]  # type: ignore[attr-defined]


def main() -> int:
    expected = {ROOT / name: file_descriptors(stems) for name, stems in MESSAGES.items()}
    expected |= dict.fromkeys((ROOT / name for name in PUBLISHED), published_descriptors())
    if "--check" not in sys.argv[1:]:
        for target, content in expected.items():
            target.write_bytes(content)
        return 0
    stale = [path for path, content in expected.items() if not path.is_file() or path.read_bytes() != content]
    for target in stale:
        print(f"{target.relative_to(ROOT)}: not what the .proto files say, run `make proto`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

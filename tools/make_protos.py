# SPDX-License-Identifier: Apache-2.0
"""Write services.binpb, the descriptors for server reflection of the Python and the Go host, from serving_proxy/protos.

python tools/make_protos.py [--check]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "serving_proxy" / "protos"
TARGETS = (
    ROOT / "serving_proxy" / "generated" / "services.binpb",
    # Go can only embed files of its own folder.
    ROOT / "libprocessor" / "go" / "cmd" / "recprocessor-host" / "services.binpb",
)


def current() -> bytes:
    """Return the expected content of the file: a FileDescriptorSet with everything that the services need."""
    beside = Path(sys.executable).with_name("protoc")
    protoc = str(beside) if beside.is_file() else shutil.which("protoc")
    if protoc is None:
        raise FileNotFoundError("protoc: not found, expected it in PATH or beside Python")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "services.binpb")
        sources = sorted(path.name for path in PROTOS.glob("*.proto"))
        command = [protoc, f"--proto_path={PROTOS}", f"--descriptor_set_out={out}", "--include_imports", *sources]
        subprocess.run(command, check=True)
        return out.read_bytes()


def main() -> int:
    written = current()
    if "--check" not in sys.argv[1:]:
        for target in TARGETS:
            target.write_bytes(written)
        return 0
    stale = [target for target in TARGETS if not target.is_file() or target.read_bytes() != written]
    for target in stale:
        print(f"{target.relative_to(ROOT)}: not what the .proto files say, run `make proto`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

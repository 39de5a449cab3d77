# SPDX-License-Identifier: Apache-2.0
"""Write serving_proxy/generated/services.binpb, the descriptors for server reflection, from serving_proxy/protos.

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
TARGET = ROOT / "serving_proxy" / "generated" / "services.binpb"


def current() -> bytes:
    """Return what the file must hold: a FileDescriptorSet with everything that the services need."""
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
    if "--check" in sys.argv[1:]:
        if TARGET.is_file() and TARGET.read_bytes() == current():
            return 0
        print(f"{TARGET.relative_to(ROOT)}: not what the .proto files say, run `make proto`")
        return 1
    TARGET.write_bytes(current())
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Create the ONNX form of W2, once, from the weights of its SavedModel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from load_tests.workloads._cache import CACHE, ROOT, ensure_model

PYTHON = Path(os.environ.get("PROCESSOR_PEERS_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))


@dataclass(frozen=True)
class Peer:
    """Describe an engine for comparison.

    Attributes
    ----------
    name : str
        Its name in the results.
    engine : str
        "onnxruntime" or "openvino".
    precision : str
        "fp32", "bf16" or "int8".
    tolerance : float
        Allowed difference of its scores from stock TensorFlow's, absolute and relative.
    """

    name: str
    engine: str
    precision: str
    tolerance: float

    def command(self, model: Path, rows: int) -> list[str]:
        """Return the command that `bench_serving` starts."""
        script = Path(__file__).with_name("serve_peer.py")
        options = {"engine": self.engine, "precision": self.precision, "model": model, "workload": "W2", "rows": rows}
        return [str(PYTHON), str(script), *(f"--{name}={value}" for name, value in options.items())]


PEERS = (
    Peer("ONNX Runtime", "onnxruntime", "fp32", 1e-4),
    Peer("OpenVINO", "openvino", "fp32", 1e-4),
    Peer("OpenVINO bf16", "openvino", "bf16", 5e-2),
    Peer("OpenVINO int8", "openvino", "int8", 5e-2),
)


def ensure_peer_model(cache: Path = CACHE, precision: str = "fp32") -> Path:
    """Return the file of W2 for a precision; create it if the cache does not contain it.

    It is ONNX, and for int8 OpenVINO's format, with scales that NNCF found.

    Raises
    ------
    FileNotFoundError
        If the peers' environment does not exist.
    subprocess.CalledProcessError
        If it could not be created; messages are on stderr.
    """
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON}: not found; `make bench` creates the environment of the peers")
    if precision == "int8":
        return _ensure_int8(cache)
    target = cache / "idwdl.onnx"
    if target.exists():
        return target
    model = ensure_model("W2", cache)
    folder = Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        weights, made = Path(scratch) / "weights.npz", Path(scratch) / "model.onnx"
        subprocess.run([sys.executable, str(folder / "export_weights.py"), str(model), str(weights)], check=True)
        subprocess.run([str(PYTHON), str(folder / "make_onnx.py"), str(weights), str(made)], check=True)
        made.rename(target)
    return target


def _ensure_int8(cache: Path) -> Path:
    target = cache / "idwdl-int8" / "model.xml"
    if target.exists():
        return target
    model = ensure_peer_model(cache)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch) / "idwdl-int8"
        script = Path(__file__).with_name("make_int8.py")
        subprocess.run([str(PYTHON), str(script), str(model), str(made / target.name)], check=True)
        made.rename(target.parent)
    return target

# SPDX-License-Identifier: Apache-2.0
"""Describe the CPU of this machine, as far as numerical results depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_WANTED = (
    "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16",
    "amx_int8",
)  # fmt: skip


@dataclass(frozen=True)
class Cpu:
    """A CPU.

    Attributes
    ----------
    model : str
    features : tuple of str
        Instruction sets that dense layers and tables use, as Linux names them.
    vendor : str
    """

    model: str
    features: tuple[str, ...]
    vendor: str = ""

    @property
    def arithmetic(self) -> str:
        """Arithmetic of bf16 on this CPU: `bf16`, or `bf16 weights` if bf16 products are absent or slower."""
        fast = "amx_bf16" in self.features or ("avx512_bf16" in self.features and self.vendor == "AuthenticAMD")
        return "bf16" if fast else "bf16 weights"


def this_cpu(file: Path = Path("/proc/cpuinfo")) -> Cpu:
    """Return the first CPU that Linux describes in `file`."""
    found: dict[str, str] = {}
    try:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(found.get("flags", "").split())
    features = tuple(feature for feature in _WANTED if feature in flags)
    return Cpu(found.get("model name", "unknown"), features, found.get("vendor_id", ""))

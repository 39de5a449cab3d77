# SPDX-License-Identifier: Apache-2.0
"""What the processor of this machine is, as far as numbers depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_WANTED = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
)  # fmt: skip


@dataclass(frozen=True)
class Cpu:
    """A processor.

    Attributes
    ----------
    model : str
    features : tuple of str
        Of its instruction sets those that dense layers and tables make use of, as Linux names them.
    vendor : str
    """

    model: str
    features: tuple[str, ...]
    vendor: str = ""

    @property
    def arithmetic(self) -> str:
        """What libprocessor's bf16 is on it: `bf16`, or `bf16 weights` where bf16 products are absent or slower."""
        fast = "amx_bf16" in self.features or ("avx512_bf16" in self.features and self.vendor == "AuthenticAMD")
        return "bf16" if fast else "bf16 weights"


def this_cpu(file: Path = Path("/proc/cpuinfo")) -> Cpu:
    """Read what Linux says of the first processor."""
    found: dict[str, str] = {}
    try:
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(found.get("flags", "").split())
    features = tuple(one for one in _WANTED if one in flags)
    return Cpu(found.get("model name", "unknown"), features, found.get("vendor_id", ""))

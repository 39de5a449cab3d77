# SPDX-License-Identifier: Apache-2.0
"""Create certificates for tests with openssl."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.system.programs import require, run_ok


@dataclass(frozen=True)
class Certificate:
    """Contain the paths of a certificate and its key (PEM)."""

    chain: Path
    key: Path


def make_authority(folder: Path, name: str) -> Certificate:
    """Create a certificate that signs others."""
    require("openssl")
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run_ok([*command, "-days", "2", "-subj", f"/CN={name}", "-keyout", made.key, "-out", made.chain])
    return made


def make_certificate(folder: Path, name: str, authority: Certificate) -> Certificate:
    """Create a certificate for 127.0.0.1 and localhost."""
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    run_ok([*command, "-CA", authority.chain, "-CAkey", authority.key, "-keyout", made.key, "-out", made.chain])
    return made

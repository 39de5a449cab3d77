# SPDX-License-Identifier: Apache-2.0
"""Collect the licenses of all components that the C distribution contains or was compiled with.

    python tools/third_party_notices.py > THIRD_PARTY_NOTICES.txt

All texts are read from the installed packages; a package that was installed without its license is an error.
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

_RULE = "=" * 100

# Folder in which Linux distributions keep the license of libgomp.
_GCC_COPYRIGHT = Path("/usr/share/doc/libgomp1/copyright")
_GPL_3 = Path("/usr/share/common-licenses/GPL-3")

# The package names the license of the parser that it contains; this project has the same license.
_APACHE_2 = Path(__file__).resolve().parent.parent / "LICENSE"

_GOMP_NOTE = """\
libgomp.so.1 is the OpenMP run-time library of GCC, copied unchanged from the machine that built this distribution.
Copyright (C) Free Software Foundation, Inc.
It is licensed under the GNU General Public License, version 3 or later, with the GCC Runtime Library Exception,
version 3.1, which permits programs of any license to link with it.
Its source is part of every GCC release: https://gcc.gnu.org/releases.html, folder libgomp.
"""


@dataclass(frozen=True)
class Notice:
    """Describe a component, its use, and the texts that must accompany it."""

    title: str
    use: str
    text: str


def _package_files(package: str, *names: str) -> str:
    """Read the files of an installed package whose paths end in one of the names, in the order of the names."""
    files = importlib.metadata.files(package) or []
    texts = []
    for name in names:
        found = [Path(str(file.locate())) for file in files if str(file).endswith(name)]
        if not found:
            raise FileNotFoundError(f"{package}: no file {name}, expected one in the installed package")
        texts.append(found[0].read_text(encoding="utf-8", errors="replace").strip("\n"))
    return "\n\n".join(texts) + "\n"


def _tensorflow() -> str:
    """Return the name of the installed TensorFlow distribution."""
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name
    raise FileNotFoundError("tensorflow-cpu: not installed, expected it in the environment of this interpreter")


def _title(name: str, package: str) -> str:
    return f"{name} {importlib.metadata.version(package)}"


def _gomp() -> Notice:
    texts = [_GOMP_NOTE]
    texts += [path.read_text(encoding="utf-8", errors="replace") for path in (_GCC_COPYRIGHT, _GPL_3) if path.exists()]
    return Notice(
        "libgomp (GCC)", "carried as lib/libgomp.so.1", "\n\n".join(text.strip("\n") for text in texts) + "\n"
    )


def notices() -> list[Notice]:
    """List every component of the distribution."""
    tensorflow = _tensorflow()
    return [
        Notice(
            _title("TensorFlow", tensorflow),
            "carried as lib/libtensorflow_cc.so.2 and lib/libtensorflow_framework.so.2",
            _package_files(tensorflow, "tensorflow/include/LICENSE", "tensorflow/THIRD_PARTY_NOTICES.txt"),
        ),
        Notice(
            _title("oneDNN", "onednn-cpu-gomp"),
            "carried as lib/libdnnl.so.3",
            _package_files("onednn-cpu-gomp", "doc/onednn/LICENSE", "doc/onednn/THIRD-PARTY-PROGRAMS"),
        ),
        _gomp(),
        Notice(
            _title("JSON for Modern C++", "nlohmann-json"),
            "compiled into lib/libprocessor.so",
            _package_files("nlohmann-json", "licenses/LICENSE"),
        ),
        Notice(
            f"simdjson, as in {_title('pysimdjson', 'pysimdjson')}",
            "compiled into lib/libprocessor.so",
            _package_files("pysimdjson", "licenses/LICENSE") + "\n" + _APACHE_2.read_text(encoding="utf-8"),
        ),
    ]


def render() -> str:
    """Return one text with a list of the components, followed by the license of each."""
    parts = notices()
    lines = ["Third-party software in this distribution", ""]
    lines += [f"- {part.title}: {part.use}" for part in parts]
    for part in parts:
        lines += ["", _RULE, part.title, part.use, _RULE, "", part.text.strip("\n")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())

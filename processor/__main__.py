# SPDX-License-Identifier: Apache-2.0
"""Print where the library and its headers are, their versions, or facts about a model: `python -m processor --help`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from processor import Model, ProcessorError, library_path
from processor._ffi import ffi
from processor._lib import format_abi, get_lib


def include_path() -> Path:
    """Return the folder to pass to a C compiler with -I: from the installed package, otherwise from the checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "include", package.parent / "libprocessor" / "include"):
        if (folder / "processor" / "processor.h").is_file():
            return folder
    raise SystemExit(f"processor.h: not found below {package}, expected an installed package or a checkout")


def version_text() -> str:
    """Return the versions of the library, the ABI and TensorFlow, one per line."""
    lib = get_lib()
    build = json.loads(ffi.string(lib.processor_build_info()))
    tensorflow = build["tensorflow"]
    return "\n".join(
        (
            f"recprocessor {ffi.string(lib.processor_version()).decode()}",
            f"ABI {format_abi(lib.processor_abi_version())}",
            f"TensorFlow {tensorflow['running']} (built against {tensorflow['built']})",
        )
    )


def model_info(path: str) -> str:
    """Return the description of a model and of its inputs and outputs, as JSON."""
    with Model(path) as model:
        return json.dumps(model.info, indent=2)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m processor", description=__doc__.partition(":")[0] + ".")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--library-path", action="store_true", help="print the path of libprocessor.so")
    what.add_argument("--include-path", action="store_true", help="print the folder of the C headers, for -I")
    what.add_argument("--version", action="store_true", help="print the versions of library, ABI and TensorFlow")
    what.add_argument("--info", metavar="MODEL_DIR", help="load a model and print what it is, as JSON")
    options = parser.parse_args(arguments)
    try:
        if options.library_path:
            print(library_path())
        elif options.include_path:
            print(include_path())
        elif options.version:
            print(version_text())
        else:
            print(model_info(options.info))
    except ProcessorError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

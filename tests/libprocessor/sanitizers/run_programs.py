# SPDX-License-Identifier: Apache-2.0
"""Run programs of a sanitizer build: `python run_programs.py BUILD PROGRAM... [--seconds N]`.

Exits with 1 if one fails or a sanitizer reports something.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
TABLE_ROWS = 3000
OPTIONS = {
    # Messages of protobuf are filled by our code, which marks what is unused, and by TensorFlow's, which does not.
    "ASAN_OPTIONS": "detect_container_overflow=0:detect_leaks=1:strict_init_order=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    # The memory that TensorFlow touches is not watched: it synchronizes by means that the sanitizer does not see.
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:second_deadlock_stack=1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def export_models(folder: Path) -> None:
    """Make the models that the programs need, in a process without sanitizer."""
    if (folder / "rows" / "artifact" / "saved_model.pb").exists():
        return
    script = (
        f"import sys; sys.path.insert(0, {str(TESTS)!r})\n"
        "from pathlib import Path; from helpers.models import host_model, model_builders, row_models\n"
        f"folder = Path({str(folder)!r})\n"
        "model_builders.build_linear(folder / 'linear')\n"
        "host_model.export_host_model(folder / 'host' / '7')\n"
        f"row_models.make_row_model(folder / 'rows', {TABLE_ROWS})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def main() -> int:
    """Run the programs and print how each ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--seconds", default="10", help="how long the stress programs run")
    arguments = parser.parse_args()
    # What hosts desire has no relative paths.
    models = (arguments.build / "models").resolve()
    export_models(models)
    # The program makes it, which a former run has done.
    state = arguments.build.resolve() / "state"
    shutil.rmtree(state, ignore_errors=True)
    parameters_of = {
        "processor_tests": [],
        "processor_kernel_tests": [],
        # A race is seen only when it happens.
        "processor_thread_tests": ["--gtest_repeat=5", "--gtest_brief=1"],
        "elastic_training_tests": ["--gtest_brief=1"],
        "processor_test_c_api": [str(models / "host" / "7")],
        "processor_test_c_api_drop_in": [str(models / "host" / "7")],
        "processor_test_c_api_host": [str(models / "host" / "7"), str(state)],
        "processor_stress": [str(models / "linear"), arguments.seconds, "64"],
        "processor_early_reads": [str(models / "rows" / "artifact"), str(TABLE_ROWS), arguments.seconds],
    }
    failed = []
    for name in arguments.programs:
        begin = time.monotonic()
        command = [str(arguments.build.resolve() / "tests" / name), *parameters_of[name]]
        # Some write files where they run.
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **OPTIONS},
                text=True,
                errors="replace",
                capture_output=True,
                check=False,
            )
        print(
            f"{name}: {'passed' if ended.returncode == 0 else 'FAILED'} in {time.monotonic() - begin:.1f} s", flush=True
        )
        if ended.returncode != 0:
            failed.append(name)
            print((ended.stdout + ended.stderr)[-12000:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

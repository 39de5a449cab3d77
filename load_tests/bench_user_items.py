# SPDX-License-Identifier: Apache-2.0
"""Measure the effect of computing the user's side of a request once: one user and 512 items.

    python -m load_tests.bench_user_items            # the figures: about three minutes
    python -m load_tests.bench_user_items --quick    # checks outputs and the program only

Optimizes W1 with and without `--user-inputs C1,...,C20`. `bench_serving` (libprocessor/bench) then sends requests of
512 items to both in turns and compares the outputs. The user's features are sent as 512 equal rows, as one row (which
only the split model accepts), and as rows that differ, for which there is no gain. Prints a table and the targets, and
writes results/bench_user_items.json. docs/benchmarks/fused_models.md explains it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._report import Target
from load_tests.bench_fused import PRECISIONS, fuse, loaded_precisions
from load_tests.bench_serving import default_config
from load_tests.request_files import Array, encode_request, random_inputs, write_requests
from load_tests.workloads import ensure_model

__all__ = ["FORMS", "TARGETS", "judge", "main", "summarize"]

USER_INPUTS = tuple(f"C{i}" for i in range(1, 21))
ITEMS = 512
REQUESTS = 16
#: Least ratio of requests/s of the split model to those of the other, with one user per request.
TARGETS = {"fp32": 1.35, "bf16": 1.5}
#: Allowed difference of scores between the two: the first layer adds in another order.
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-2}
#: Form of the user's features: for both models, and for the split model if its requests differ.
FORMS = {"equal rows": ("equal", "equal"), "one row": ("equal", "one"), "rows that differ": ("differ", "differ")}


def _equal(inputs: dict[str, Array]) -> dict[str, Array]:
    return {
        key: np.repeat(value, ITEMS, 0) if key in USER_INPUTS else value for key, value in _one_user_row(inputs).items()
    }


def _one_user_row(inputs: dict[str, Array]) -> dict[str, Array]:
    return {key: value[:1] if key in USER_INPUTS else value for key, value in inputs.items()}


_SHAPES: dict[str, Callable[[dict[str, Array]], dict[str, Array]]] = {
    "equal": _equal,
    "one": _one_user_row,
    "differ": lambda inputs: inputs,
}


def ensure_requests(folder: Path) -> dict[str, Path]:
    """Write files of the same requests in each form, if they are missing, and return their paths by form."""
    files = {shape: folder / f"W1-user-{shape}-{ITEMS}-eas.bin" for shape in _SHAPES}
    for shape, file in files.items():
        if not file.exists():
            rng = np.random.default_rng([ITEMS, len(USER_INPUTS)])
            inputs = (random_inputs("W1", ITEMS, rng) for _ in range(REQUESTS))
            write_requests(file, (encode_request(_SHAPES[shape](source), "eas") for source in inputs))
    return files


def contestants(
    models: dict[str, Path], precision: str, requests: Path, config: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the two engines of one case in the format of `bench_serving --contestants`; the reference is first."""
    common = {"engine": "processor", "config": config, "tolerance": TOLERANCES[precision]}
    engines = [{"name": name, "model": str(model.resolve())} | common for name, model in models.items()]
    engines[-1]["requests"] = str(requests)
    return engines


def summarize(precision: str, form: str, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results.

    Returns
    -------
    case : dict
        `engines`: for each name the medians over the rounds, and the rounds; `speedup`: requests/s of the split model
        divided by the other's; `cpu_saved`: CPU time of the other model divided by the split model's.
    """
    engines = engine_medians(output)
    whole, split = engines["unsplit"], engines["split"]
    return {
        "precision": precision,
        "form": form,
        "items": ITEMS,
        "threads": output["threads"],
        "speedup": round(split["requests_per_s"] / whole["requests_per_s"], 4),
        "cpu_saved": round(whole["cpu_s_per_1000"] / split["cpu_s_per_1000"], 4),
        "engines": engines,
    }


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases of one user with the targets."""
    return [
        Target(
            f"W1, 1 user x {ITEMS} items in {case['form']}, {case['precision']}, requests/s over unsplit",
            case["speedup"],
            TARGETS[case["precision"]],
            at_least=True,
        )
        for case in cases
        if case["form"] != "rows that differ"
    ]


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"W1, {len(USER_INPUTS)} features of a user and {ITEMS} items (codec included)")
    for heading in ("precision", "user's features", "model"):
        table.add_column(heading)
    for heading in ("requests/s", "over unsplit", "p50 ms", "p99 ms", "CPU s/1,000", "max |Δ|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        for name, engine in case["engines"].items():
            split = name == "split"
            table.add_row(
                "" if split else case["precision"],
                "" if split else case["form"],
                f"[bold]{name}[/]" if split else name,
                f"{engine['requests_per_s']:,.1f}",
                f"{case['speedup']:.2f}" if split else "",
                f"{engine['p50_us'] / 1000:.2f}",
                f"{engine['p99_us'] / 1000:.2f}",
                f"{engine['cpu_s_per_1000']:.2f}",
                f"{engine['max_abs_difference']:.1e}" if split else "",
                end_section=split,
            )
    return table


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cases: list[dict[str, Any]] = []
    requests = ensure_requests(options.cache / "requests")
    models: dict[str, dict[str, Path]] = {}
    for precision in options.precisions:
        console.print(f"Optimizing W1, {precision}")
        models[precision] = {
            # A quick run compares with the model as it was exported.
            "unsplit": ensure_model("W1", options.cache)
            if options.quick
            else fuse("W1", precision, options.cache, options.library),
            "split": fuse("W1", precision, options.cache, options.library, USER_INPUTS),
        }
    split = {precision: by_form["split"] for precision, by_form in models.items()}
    precisions = loaded_precisions({"W1 split": split}, options.library)
    for precision in options.precisions:
        for form in options.forms:
            console.print(f"Measuring {precision}, {form}")
            both, own = (requests[shape] for shape in FORMS[form])
            engines = contestants(models[precision], precision, own, default_config(usable_cpus()))
            cases.append(summarize(precision, form, measure_engines(options, both, contestants=engines)))
    return Measured(cases, _table(cases), judge(cases), {"precisions": precisions})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    description = "Measure the effect of computing the user's side of a request only once."
    parser = BenchmarkParser("bench_user_items", description, rounds=7, seconds=2, of="each model")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="precisions")
    parser.add_argument(
        "--forms", nargs="+", choices=list(FORMS), default=list(FORMS), help="forms of the user's features"
    )
    parser.add_threads()
    parser.add_programs()
    return run_benchmark("user_items", parser.parse(arguments), _measure)


if __name__ == "__main__":
    sys.exit(main())

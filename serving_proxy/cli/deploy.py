# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy deploy` and `undeploy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from serving_proxy.cli.app import app, guarded, remark
from serving_proxy.cli.options import (
    SERVER,
    AsJson,
    CaFile,
    Name,
    Server,
    TokenFile,
    Wait,
    connect,
    json_object,
    print_json,
    seconds,
)
from serving_proxy.cli.progress import follow
from serving_proxy.cli.rendering import console, render_model

_DEPLOY = """Deploy a version: check it, optimize it if asked, load it beside what serves, and give it its share.

The first version of a model is its baseline. Repeating the command changes nothing; with other settings, it changes
those. PATH is a SavedModel's folder, or a DeepRec Processor's JSON, as the proxy sees it.

**Examples**

- `serving-proxy deploy ranking /models/ranking/3 --wait`
- `serving-proxy deploy ranking /models/ranking/4 --optimize --traffic 10 --slo-p99-ms 20 --wait`
- `serving-proxy deploy ranking /models/ranking/5 --shadow`
"""
_UNDEPLOY = """Take a version out after its last request, or the whole model.

**Examples**

- `serving-proxy undeploy ranking --version 4`
- `serving-proxy undeploy ranking`
"""


@app.command(name="deploy", help=_DEPLOY)
@guarded
def deploy_command(
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The model.")],
    version: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, show_default=False, help="Its number: the folder's name if that is one, else the next."
        ),
    ] = None,
    optimize: Annotated[
        bool, typer.Option("--optimize", metavar="", help="Cut and fuse it by graph-tools first, verified.")
    ] = False,
    precision: Annotated[
        str, typer.Option(metavar="auto|fp32|bf16", help="Of the dense layers of an optimized model.")
    ] = "auto",
    traffic: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", show_default=False, help="Share of the requests, once it is ready."),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", metavar="", help="Send it copies of the baseline's requests.")
    ] = False,
    shadow_percent: Annotated[
        float | None, typer.Option(metavar="PERCENT", show_default=False, help="Of so many of them.")
    ] = None,
    slo_p99_ms: Annotated[
        float | None, typer.Option(metavar="MS", show_default=False, help="Its objective for the 99th percentile.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|auto", show_default=False, help="Of `cost-model profile`; else, or by `auto`, it is measured."
        ),
    ] = None,
    warmup: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|last",
            show_default=False,
            help="Recorded requests to warm it up with; `last`: of the request log.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", show_default=False, help="Session settings, as configuration.md has them."),
    ] = None,
    cpuset: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", show_default=False, help="Its CPUs; groups for sessions: '0-1;2-3'; 'auto': as by default."
        ),
    ] = None,
    batching: Annotated[
        str | None,
        typer.Option(metavar="off|zero_wait|timed", show_default=False, help="How its requests are put together."),
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Rows of a batch at most.")
    ] = None,
    max_wait_us: Annotated[
        int | None, typer.Option(metavar="US", show_default=False, help="Wait for a timed batch at most.")
    ] = None,
    max_queue: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Requests that may wait.")
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Requests that may wait or run.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Larger is kept longer under load.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", show_default=False, help="A name for it in requests; repeatable."),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(metavar="LAYER", show_default=False, help="Experiments of one layer exclude each other."),
    ] = None,
    key_input: Annotated[
        str | None, typer.Option(metavar="INPUT", show_default=False, help="Input that routes requests without a key.")
    ] = None,
    other_signature: Annotated[
        bool, typer.Option("--other-signature", metavar="", help="Its signature need not be the baseline's.")
    ] = False,
    allow_op: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP", show_default=False, help="An op that touches files or more, and that it may use; repeatable."
        ),
    ] = None,
    wait: Wait = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="Wait at most so long: 30s, 15m, 1h.")
    ] = None,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    limit = None if timeout is None else seconds(timeout, "--timeout")
    batch = {"mode": batching, "max_rows": max_rows, "max_wait_us": max_wait_us}
    limits = {"max_queue": max_queue, "max_in_flight": max_in_flight}
    options: dict[str, Any] = {
        "version": version,
        "optimize": optimize or None,
        "precision": precision if optimize else None,
        "traffic": traffic,
        "shadow": 100.0 if shadow and shadow_percent is None else shadow_percent,
        "slo_p99_ms": slo_p99_ms,
        "profile": _word_or_file(profile, "auto"),
        "warmup": _word_or_file(warmup, "last"),
        "config": json_object(config, "--config"),
        "cpuset": cpuset,
        "batching": {key: value for key, value in batch.items() if value is not None} or None,
        "limits": {key: value for key, value in limits.items() if value is not None} or None,
        "priority": priority,
        "labels": label or None,
        "layer": layer,
        "key_input": key_input,
        "other_signature": other_signature or None,
        "allow_ops": allow_op or None,
    }
    with connect(server, token_file, ca_file) as client:
        # A relative path is meant where the command is given, which is where the proxy is as a rule.
        answer = client.deploy(name, path.absolute(), **options)
        for note in answer["notes"]:
            remark(note)
        if wait and answer["job"] is not None:
            answer["job"] = follow(client, answer["job"], limit)
            answer["model"] = client.versions(name)
    if as_json:
        print_json(answer)
    else:
        console().print(render_model(answer["model"]))


def _word_or_file(given: Path | None, word: str) -> str | None:
    """Return what the proxy is asked for in the place of a file: a word of its own, or a path wherever it runs."""
    return None if given is None else word if str(given) == word else str(given.absolute())


@app.command(name="undeploy", help=_UNDEPLOY)
@guarded
def undeploy_command(
    name: Name,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default=False, help="One version only.")
    ] = None,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    with connect(server, token_file, ca_file) as client:
        model = client.undeploy(name, version)
    if as_json:
        print_json(model)
    else:
        console().print(render_model(model))

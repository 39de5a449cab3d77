# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy deploy` and `undeploy`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from serving_proxy.cli.app import remark
from serving_proxy.cli.commands import proxy_command
from serving_proxy.cli.declared import with_options
from serving_proxy.cli.options import Name, Timeout, Wait, place, seconds
from serving_proxy.cli.progress import follow, follow_version
from serving_proxy.cli.rendering import render_model
from serving_proxy.client import Client, Json
from serving_proxy.deploy.options import DeployOptions

_DEPLOY = """Deploy a version: check it, optimize it if asked, load it beside the others, and send it requests.

The first version of a model is its baseline. Repeating the command changes nothing; repeating it with other settings
changes these settings. PATH is a SavedModel directory, or the JSON file of a DeepRec Processor, on the proxy's machine,
or the URL of a model in a store. Other machines get the model from the store, and the warm-up file from the proxy;
other folders must have the same path there.

**Examples**

- `serving-proxy deploy ranking /models/ranking/3 --wait`
- `serving-proxy deploy ranking /models/ranking/4 --optimize --traffic 10 --slo-p99-ms 20 --wait`
- `serving-proxy deploy ranking /models/ranking/5 --shadow`
- `serving-proxy deploy ranking s3://models/ranking/6 --wait`
"""
_UNDEPLOY = """Remove a version, or a whole model, after its requests in flight have ended.

**Examples**

- `serving-proxy undeploy ranking --version 4`
- `serving-proxy undeploy ranking`
"""


@proxy_command("deploy", _DEPLOY, lambda answer: render_model(answer["model"]))
@with_options(DeployOptions)
def deploy_command(
    *,
    client: Client,
    name: Name,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="SavedModel directory, its URL in a store, or DeepRec Processor JSON.")
    ],
    shadow: Annotated[
        bool, typer.Option("--shadow", metavar="", help="Mirror all requests of the baseline to this version.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    given: dict[str, Any],
) -> Json:
    limit = None if timeout is None else seconds(timeout, "--timeout")
    if shadow:
        given.setdefault("shadow", 100.0)
    if not given.get("optimize"):
        given.pop("precision", None)
    # The command usually runs on the proxy's machine.
    answer = client.deploy(name, place(path), **given)
    for note in answer["notes"]:
        remark(note)
    if wait:
        since = time.monotonic()
        if answer["job"] is not None:
            answer["job"] = follow(client, answer["job"], limit)
        answer["model"] = follow_version(client, name, answer["version"], limit, since)
    return answer


@proxy_command("undeploy", _UNDEPLOY, render_model)
def undeploy_command(
    *,
    client: Client,
    name: Name,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, show_default=False, help="Remove only this version.")
    ] = None,
) -> Json:
    return client.undeploy(name, version)

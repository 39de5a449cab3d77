# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from serving_proxy.cli.app import app, guarded
from serving_proxy.errors import InvalidError

_HELP = """Run the proxy: start hosts, and answer the other verbs at the admin port.

All state is in the state directory; after a crash, the same command brings back what was deployed. Every option may be
given as a variable, such as SERVING_PROXY_ADMIN_PORT.

**Examples**

- `serving-proxy serve --state-dir /var/lib/recprocessor --model-root /models`
- `serving-proxy serve --state-dir state --host go --cpus 0-3 --config models.config`
- `serving-proxy serve --state-dir state --host none`
"""


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, show_default=False, help=text)


@app.command(name="serve", help=_HELP)
@guarded
def serve_command(
    state_dir: Annotated[Path | None, _option("DIR", "Where everything is kept. Required.")] = None,
    grpc_port: Annotated[int | None, _option("N", "gRPC port of the hosts: 8500.")] = None,
    rest_port: Annotated[int | None, _option("N", "REST port of the hosts: 8501.")] = None,
    health_port: Annotated[
        int | None, _option("N", "Health and metrics of the first host, without TLS; of the next ones, N+1 and so on.")
    ] = None,
    admin_port: Annotated[int | None, _option("N", "Admin port: 8502.")] = None,
    address: Annotated[str | None, _option("ADDRESS", "Where hosts listen: 127.0.0.1.")] = None,
    admin_address: Annotated[str | None, _option("ADDRESS", "Where the admin port listens: 127.0.0.1.")] = None,
    host: Annotated[str | None, _option("python|go|none", "Which hosts to start: python.")] = None,
    host_processes: Annotated[int | None, _option("N", "How many, on the same ports: 1.")] = None,
    cpus: Annotated[str | None, _option("LIST", "CPUs of the hosts, such as 0-3.")] = None,
    maintenance_cpus: Annotated[str | None, _option("LIST", "CPUs to load and optimize on.")] = None,
    cores: Annotated[str | None, _option("off|plan|control", "Divide the cores of --cpus among versions: off.")] = None,
    memory_limit_mb: Annotated[
        int | None, _option("MB", "Memory for models; else the machine's, less a tenth.")
    ] = None,
    tls_cert: Annotated[
        Path | None, _option("FILE", "Certificate of the hosts, and of an admin port elsewhere.")
    ] = None,
    tls_key: Annotated[Path | None, _option("FILE", "Its key.")] = None,
    client_ca: Annotated[Path | None, _option("FILE", "Clients of the hosts need a certificate of these.")] = None,
    admin_auth: Annotated[
        str | None, _option("token|none", "Whether the admin port wants a token: token, one that is made.")
    ] = None,
    token_file: Annotated[Path | None, _option("FILE", "Token of the admin port, in the place of one's own.")] = None,
    admin_tls_cert: Annotated[Path | None, _option("FILE", "Certificate of the admin port, if not the hosts'.")] = None,
    admin_tls_key: Annotated[Path | None, _option("FILE", "Its key.")] = None,
    model_root: Annotated[list[Path] | None, _option("DIR", "Models must lie below; repeatable.")] = None,
    allow_op: Annotated[
        list[str] | None, _option("OP", "An op that touches files or more, and that models may use; repeatable.")
    ] = None,
    config: Annotated[
        Path | None, _option("FILE", "TensorFlow Serving's models.config, or a DeepRec Processor's JSON.")
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(
            "--model-name", "--model_name", metavar="NAME", show_default=False, help="Of --model-base-path: default."
        ),
    ] = None,
    model_base_path: Annotated[
        str | None,
        typer.Option(
            "--model-base-path",
            "--model_base_path",
            metavar="DIR",
            show_default=False,
            help="Serve the latest version of one model, without --config.",
        ),
    ] = None,
    model_settings: Annotated[
        Path | None, _option("FILE", "JSON with the settings of models of --config, by name, and defaults of all.")
    ] = None,
    batching_parameters_file: Annotated[
        Path | None,
        typer.Option(
            "--batching-parameters-file",
            "--batching_parameters_file",
            metavar="FILE",
            show_default=False,
            help="TensorFlow Serving's BatchingParameters, for models that have no batching of their own.",
        ),
    ] = None,
    alert_webhook: Annotated[
        str | None, _option("URL|@FILE", "Where the guard's alerts are posted to, as JSON.")
    ] = None,
    allow_reload_rpc: Annotated[
        bool | None, typer.Option("--allow-reload-rpc", metavar="", show_default=False, help="Accept reload requests.")
    ] = None,
    allow_model_control: Annotated[
        bool | None,
        typer.Option("--allow-model-control", metavar="", show_default=False, help="Let Triton's clients load models."),
    ] = None,
    host_option: Annotated[
        list[str] | None, _option("NAME=VALUE", "Any other option of the hosts; repeatable.")
    ] = None,
    max_message_mb: Annotated[int | None, _option("MB", "Largest request of the hosts.")] = None,
    drain_timeout: Annotated[float | None, _option("SECONDS", "Time for the last requests at the end: 30.")] = None,
    hang_timeout: Annotated[
        float | None, _option("SECONDS", "A host that is silent for so long is started anew: 20; 0: never.")
    ] = None,
    load_timeout: Annotated[float | None, _option("SECONDS", "Time for a version to load and warm up: 600.")] = None,
    keep_hosts: Annotated[
        bool | None,
        typer.Option("--keep-hosts", metavar="", show_default=False, help="Leave hosts running at the end."),
    ] = None,
    discard_state: Annotated[
        bool | None,
        typer.Option("--discard-state", metavar="", show_default=False, help="Set aside what was deployed before."),
    ] = None,
    log_level: Annotated[str | None, _option("LEVEL", "DEBUG, INFO, WARNING or ERROR: INFO.")] = None,
) -> None:
    given = {name: value for name, value in locals().items() if value is not None and value != []}
    from serving_proxy.serve.process import serve
    from serving_proxy.serve.settings import ServeSettings
    from serving_proxy.system.logs import set_up

    try:
        settings = ServeSettings(**given)
    except ValidationError as error:
        fault = error.errors()[0]
        name = "--" + str(fault["loc"][0]).replace("_", "-")
        found = "nothing" if fault["type"] == "missing" else repr(fault["input"])
        raise InvalidError(f"{name}: {found}, {fault['msg']}") from error
    set_up(settings.log_level)
    serve(settings)

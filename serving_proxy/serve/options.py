# SPDX-License-Identifier: Apache-2.0
"""The options of `serving-proxy serve`, declared once for its command line and its environment variables.

This module is imported by every command, so it imports little; `settings.py` checks and uses the values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from serving_proxy.records.model_cache import ModelCache, ModelCacheMb
from serving_proxy.records.option import CliOption

Port = Annotated[int, Field(ge=0, le=65535)]


class ServeOptions(BaseModel):
    """The options of `serve`, in the order of its help text; each help text says what the option means."""

    state_dir: Annotated[Path, CliOption("DIR", "Directory for everything that the proxy stores. Required.")]
    grpc_port: Annotated[Port, CliOption("N", "gRPC port of the hosts.")] = 8500
    rest_port: Annotated[Port, CliOption("N", "REST port of the hosts.")] = 8501
    health_port: Annotated[
        Annotated[int, Field(ge=1, le=65535 - 255)] | None,
        CliOption(
            "N", "Port for health and metrics of the first host, without TLS; the next host uses N+1, and so on."
        ),
    ] = None
    admin_port: Annotated[Port, CliOption("N", "Port of the admin API and the dashboard.")] = 8502
    address: Annotated[str, CliOption("ADDRESS", "Address at which the hosts listen.")] = "127.0.0.1"
    admin_address: Annotated[str, CliOption("ADDRESS", "Address at which the admin port listens.")] = "127.0.0.1"
    engine: Annotated[
        Literal["local", "agents", "ray"],
        CliOption(
            "local|agents|ray",
            "Where hosts run: on this machine, started by the proxy; on the machines whose agents follow it; or as "
            "replicas that Ray places on its nodes.",
        ),
    ] = "local"
    ray_address: Annotated[str, CliOption("ADDRESS", "With --engine ray: the cluster, or auto.")] = "auto"
    ray_namespace: Annotated[
        Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")],
        CliOption("NAME", "With --engine ray: namespace of the replicas in the cluster; each fleet has its own."),
    ] = "recprocessor"
    replicas: Annotated[
        Annotated[str, Field(pattern=r"^(auto|[0-9]{1,4})$")],
        CliOption("N|auto", "With --engine ray: number of replicas of the host; auto: as many as the traffic needs."),
    ] = "1"
    least_replicas: Annotated[
        Annotated[int, Field(ge=1, le=1000)], CliOption("N", "Least number of replicas with --replicas auto.")
    ] = 2
    most_replicas: Annotated[
        Annotated[int, Field(ge=1, le=1000)], CliOption("N", "Largest number of replicas with --replicas auto.")
    ] = 16
    replica_cores: Annotated[
        Annotated[int, Field(ge=1, le=1024)],
        CliOption("N", "With --engine ray: CPUs of a replica; its host is bound to so many that no other has."),
    ] = 1
    replica_memory_mb: Annotated[
        Annotated[int, Field(ge=0)],
        CliOption("MB", "With --engine ray: memory that Ray reserves for a replica; 0: Ray does not count it."),
    ] = 0
    replica_folder: Annotated[
        Path | None,
        CliOption("DIR", "With --engine ray: folder of each node for replicas; by default one for temporary files."),
    ] = None
    agent_ca_file: Annotated[
        Path | None,
        CliOption("FILE", "With --engine ray: certificates with which replicas check that of the admin port."),
    ] = None
    agent_token_file: Annotated[
        Path | None,
        CliOption("FILE", "Token of agents, which permits nothing else; without it they need that of --token-file."),
    ] = None
    shared_store: Annotated[
        str | None,
        CliOption(
            "URL",
            "Folder or bucket that several proxies share, of which one leads: the others have all of its state, and "
            "one takes over if it fails.",
        ),
    ] = None
    new_store: Annotated[
        bool,
        CliOption(
            "", "Begin a new --shared-store if the folder is empty; without this, the proxy waits until it is mounted."
        ),
    ] = False
    lease: Annotated[
        str | None,
        CliOption(
            "kubernetes:NAME|ray",
            "With --shared-store: what says which proxy leads: a Lease in this pod's namespace, or an actor of the Ray "
            "cluster; by default it is in the store.",
        ),
    ] = None
    lease_timeout: Annotated[
        Annotated[float, Field(ge=1, le=600)],
        CliOption("SECONDS", "With --shared-store: time after which another proxy takes over."),
    ] = 5.0
    host: Annotated[Literal["python", "go", "none"], CliOption("python|go|none", "Which host program to start.")] = (
        "python"
    )
    host_processes: Annotated[
        Annotated[int, Field(ge=1, le=256)], CliOption("N", "Number of hosts, which share their ports.")
    ] = 1
    cpus: Annotated[str | None, CliOption("LIST", "CPUs of the hosts, such as 0-3.")] = None
    maintenance_cpus: Annotated[str | None, CliOption("LIST", "CPUs on which versions are loaded and optimized.")] = (
        None
    )
    cores: Annotated[
        Literal["off", "plan", "control"],
        CliOption(
            "off|plan|control",
            "How the cores of --cpus are divided among versions: not at all, by a plan, or by a plan that is adjusted "
            "to the load.",
        ),
    ] = "off"
    memory_limit_mb: Annotated[
        Annotated[int, Field(ge=0)],
        CliOption("MB", "Memory for the models of a host; 0: nine tenths of the machine's or the cgroup's."),
    ] = 0
    tls_cert: Annotated[
        Path | None,
        CliOption("FILE", "TLS certificate of the hosts, and of the admin port if other machines can reach it."),
    ] = None
    tls_key: Annotated[Path | None, CliOption("FILE", "Private key of --tls-cert.")] = None
    client_ca: Annotated[
        Path | None, CliOption("FILE", "Clients of the hosts need a certificate that these authorities have signed.")
    ] = None
    admin_auth: Annotated[
        Literal["token", "none"], CliOption("token|none", "Whether clients of the admin port need a token.")
    ] = "token"
    token_file: Annotated[
        Path | None, CliOption("FILE", "Token of the admin port; without this option the proxy makes one.")
    ] = None
    admin_tls_cert: Annotated[
        Path | None, CliOption("FILE", "TLS certificate of the admin port, if it differs from that of the hosts.")
    ] = None
    admin_tls_key: Annotated[Path | None, CliOption("FILE", "Private key of --admin-tls-cert.")] = None
    model_root: Annotated[
        tuple[Path, ...], CliOption("DIR", "Only models below this directory may be deployed; repeatable.")
    ] = ()
    model_store: Annotated[
        str | None,
        CliOption("URL", "Store that finished models are put into, such as s3://models, for other machines."),
    ] = None
    model_cache: ModelCache = None
    model_cache_mb: ModelCacheMb = None
    allow_op: Annotated[
        tuple[str, ...],
        CliOption("OP", "Permit an op that touches files, the process or the network in all models; repeatable."),
    ] = ()
    config: Annotated[
        Path | None,
        CliOption("FILE", "Models to serve: TensorFlow Serving's models.config, or a DeepRec Processor's JSON."),
    ] = None
    model_name: Annotated[
        Annotated[str, Field(min_length=1, max_length=128)],
        CliOption("NAME", "Name of the model of --model-base-path.", alias="--model_name"),
    ] = "default"
    model_base_path: Annotated[
        str | None,
        CliOption("DIR", "Serve the latest version of the one model in this directory.", alias="--model_base_path"),
    ] = None
    model_settings: Annotated[
        Path | None, CliOption("FILE", "JSON with settings of the models of --config, and defaults for all models.")
    ] = None
    batching_parameters_file: Annotated[
        Path | None,
        CliOption(
            "FILE",
            "TensorFlow Serving's BatchingParameters, for models without batching settings of their own.",
            alias="--batching_parameters_file",
        ),
    ] = None
    alert_webhook: Annotated[
        str | None, CliOption("URL|@FILE", "URL to which the guard's alerts are posted as JSON.")
    ] = None
    allow_reload_rpc: Annotated[
        bool, CliOption("", "Accept TensorFlow Serving's requests to reload the configuration.")
    ] = False
    allow_model_control: Annotated[
        bool, CliOption("", "Accept requests of Triton clients to load and unload models.")
    ] = False
    host_option: Annotated[
        tuple[str, ...], CliOption("NAME=VALUE", "Pass another option to the hosts; repeatable.")
    ] = ()
    max_message_mb: Annotated[
        Annotated[int, Field(ge=1, le=2047)] | None, CliOption("MB", "Largest request that hosts accept.")
    ] = None
    drain_timeout: Annotated[
        Annotated[float, Field(ge=0, le=3600)],
        CliOption("SECONDS", "When the proxy ends, time for the hosts to finish their requests."),
    ] = 30.0
    hang_timeout: Annotated[
        Annotated[float, Field(ge=0, le=3600)],
        CliOption("SECONDS", "Restart a host that gives no sign of life for this time; 0: never."),
    ] = 20.0
    load_timeout: Annotated[
        Annotated[float, Field(ge=0, le=1e6)],
        CliOption("SECONDS", "Time for a version to load and warm up; 0: no limit."),
    ] = 600.0
    keep_hosts: Annotated[bool, CliOption("", "Leave the hosts running when the proxy ends.")] = False
    discard_state: Annotated[
        bool, CliOption("", "Start as if nothing had been deployed; the earlier state is set aside.")
    ] = False
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], CliOption("LEVEL", "DEBUG, INFO, WARNING or ERROR.")
    ] = "INFO"

# SPDX-License-Identifier: Apache-2.0
"""Settings of `serving-proxy serve`: from the command line, else from variables `SERVING_PROXY_…`, else defaults."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from serving_proxy.access.certificates import check_certificate
from serving_proxy.access.tokens import is_loopback, read_token
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.deploy.control import ControlOptions
from serving_proxy.deploy.desired_state import HostSettings
from serving_proxy.deploy.remote_models import StoreOptions
from serving_proxy.errors import InvalidError
from serving_proxy.gates.ops import check_allowed
from serving_proxy.guard.alerts import read_webhook
from serving_proxy.host.options import check_options
from serving_proxy.hosts.command import NAMED_OPTIONS, LaunchOptions
from serving_proxy.leadership.leases import check_lease
from serving_proxy.leadership.shared_store import SharedFolder, open_shared_store
from serving_proxy.records.model_cache import cache_limit
from serving_proxy.replicas.loop import ReplicaOptions
from serving_proxy.replicas.records import RAY_MISSING
from serving_proxy.serve.options import ServeOptions
from serving_proxy.sources.batching_parameters import BatchingParameters, parse_batching
from serving_proxy.sources.models_config import single_model
from serving_proxy.system.cpus import parse_cpus
from serving_proxy.system.files import read_regular
from serving_proxy.version import version

_FILES = ("tls_cert", "tls_key", "client_ca", "admin_tls_cert", "admin_tls_key", "agent_token_file", "agent_ca_file")
_OF_REPLICAS = {"replicas", "least_replicas", "most_replicas", "replica_cores", "replica_memory_mb", "replica_folder"}
_OF_RAY = {"ray_address", "ray_namespace", "agent_ca_file", *_OF_REPLICAS}
_MOST_BATCHING_BYTES = 1024 * 1024


class ServeSettings(ServeOptions, BaseSettings):
    """The settings of `serve`: its options, which are also read from environment variables."""

    # Without decoding, a list in a variable is not JSON: `_split_list` splits it.
    model_config = SettingsConfigDict(env_prefix="SERVING_PROXY_", extra="ignore", enable_decoding=False)

    @field_validator("model_root", "allow_op", "host_option", mode="before")
    @classmethod
    def _split_list(cls, given: Any, info: ValidationInfo) -> Any:
        """Split the value of a variable: folders as in PATH, and names between commas."""
        if not isinstance(given, str):
            return given
        return tuple(part for part in given.split(os.pathsep if info.field_name == "model_root" else ",") if part)

    def check(self) -> None:
        """Raise `InvalidError` if settings contradict each other."""
        if self.admin_auth == "none" and self.token_file is not None:
            raise InvalidError(f"--admin-auth none: with --token-file {self.token_file}, expected one of them")
        for prefix in ("", "admin_"):
            if (getattr(self, f"{prefix}tls_cert") is None) != (getattr(self, f"{prefix}tls_key") is None):
                flag = f"--{prefix}tls".replace("_", "-")
                raise InvalidError(f"{flag}-cert, {flag}-key: one of them, expected both or none")
        self._check_reachable()
        self._check_engine()
        if self.client_ca is not None and self.tls_cert is None:
            raise InvalidError("--client-ca: without --tls-cert, expected both")
        allowed = {"--allow-reload-rpc": self.allow_reload_rpc, "--allow-model-control": self.allow_model_control}
        asked = next((name for name, on in allowed.items() if on), None)
        if asked is not None and self.admin_tls is not None:
            raise InvalidError(
                f"{asked}: with TLS on --admin-address {self.admin_address}, which hosts do not trust, "
                "expected an admin address of this machine"
            )
        for name in _FILES:
            file = getattr(self, name)
            if file is not None and not file.is_file():
                raise InvalidError(f"--{name.replace('_', '-')} {file}: not there, expected a file")
        if self.agent_token_file is not None:
            read_token(self.agent_token_file, "--agent-token-file ")
        if self.admin_tls is not None:
            check_certificate(*self.admin_tls, "--admin-tls-cert" if self.admin_tls_cert else "--tls-cert")
        for name in ("cpus", "maintenance_cpus"):
            if getattr(self, name):
                parse_cpus(getattr(self, name), f"--{name.replace('_', '-')}")
        if self.alert_webhook is not None:
            read_webhook(self.alert_webhook)
        check_allowed(self.allow_op)
        if self.model_base_path is not None:
            if self.config is not None:
                raise InvalidError(f"--model-base-path: with --config {self.config}, expected one of them")
            single_model(self.model_name, self.model_base_path)
        self.batching_parameters()
        fault = check_options(self._own_host_options())
        if fault is not None:
            raise InvalidError(f"--host-option: {fault}")
        if self.model_store is not None:
            # Also finds out whether the library of such stores is installed.
            open_store(parse_url(self.model_store, "--model-store"))
        for root in self.model_root:
            if not root.is_dir():
                raise InvalidError(f"--model-root {root}: not there, expected a folder")

    def _check_engine(self) -> None:
        """Check that no option contradicts --engine."""
        if self.new_store and self.shared_store is None:
            raise InvalidError("--new-store: expected --shared-store with it")
        if self.lease is not None:
            check_lease(self.lease)
            if self.shared_store is None:
                raise InvalidError(f"--lease {self.lease}: expected --shared-store with it")
            if self.lease == "ray" and self.engine != "ray":
                raise InvalidError(f"--lease ray: with --engine {self.engine}, expected --engine ray")
        if self.engine != "ray":
            self._check_no_replicas()
        if self.engine == "local":
            if self.agent_token_file is not None:
                raise InvalidError(
                    f"--agent-token-file {self.agent_token_file}: expected --engine agents or ray with it"
                )
            if self.shared_store is not None:
                raise InvalidError(f"--shared-store {self.shared_store}: expected --engine agents or ray with it")
            return
        if self.shared_store is not None and self.discard_state:
            raise InvalidError("--discard-state: with --shared-store, expected --new-store with an empty store instead")
        if self.shared_store is not None and self.model_store is None and self._shared_files() is None:
            raise InvalidError(
                f"--shared-store {self.shared_store}: a bucket, expected --model-store for the models that proxies make"
            )
        if self.cores == "control":
            raise InvalidError("--cores control: moves the cores of this machine, expected off or plan with agents")
        if self.admin_auth == "none" and self.agent_token_file is not None:
            raise InvalidError("--admin-auth none: with --agent-token-file, expected one of them")
        if self.engine == "ray":
            self._check_ray()
        elif self.host_processes != 1 or self.cpus is not None:
            given = "--cpus" if self.cpus is not None else f"--host-processes {self.host_processes}"
            raise InvalidError(
                f"{given}: with --engine agents, expected it where the hosts of each machine are started"
            )

    def _check_no_replicas(self) -> None:
        for name in sorted(_OF_RAY & self.model_fields_set):
            flag = "--" + name.replace("_", "-")
            raise InvalidError(f"{flag} {getattr(self, name)}: with --engine {self.engine}, expected --engine ray")

    def _check_ray(self) -> None:
        """Check that no option contradicts --engine ray, and that Ray is installed."""
        if self.least_replicas > self.most_replicas:
            raise InvalidError(
                f"--least-replicas {self.least_replicas}: more than --most-replicas {self.most_replicas}, expected less"
            )
        if self.host == "none":
            raise InvalidError("--host none: with --engine ray, expected python or go")
        if self.host_processes != 1:
            raise InvalidError(
                f"--host-processes {self.host_processes}: with --engine ray, expected --replicas or --replica-cores"
            )
        if self.cpus is not None:
            raise InvalidError(f"--cpus {self.cpus}: CPUs of this machine, expected --replica-cores with --engine ray")
        asked = {"--allow-reload-rpc": self.allow_reload_rpc, "--allow-model-control": self.allow_model_control}
        for name in (name for name, on in asked.items() if on):
            raise InvalidError(f"{name}: forwarded to the proxy of this machine, expected no --engine ray")
        if importlib.util.find_spec("ray") is None:
            raise InvalidError(RAY_MISSING)

    def _shared_files(self) -> Path | None:
        """Return the folder of files that proxies share; None: there is none, and each has its own."""
        store = None if self.shared_store is None else open_shared_store(self.shared_store)
        return store.folder if isinstance(store, SharedFolder) else None

    def batching_parameters(self) -> BatchingParameters | None:
        """Return the content of the file of TensorFlow Serving's batching parameters, if one is given."""
        if self.batching_parameters_file is None:
            return None
        named = f"--batching-parameters-file {self.batching_parameters_file}"
        data = read_regular(self.batching_parameters_file, _MOST_BATCHING_BYTES, "batching parameters")
        return parse_batching(data.decode("utf-8", "replace"), named)

    def _own_host_options(self) -> tuple[str, ...]:
        """Return the options that are passed to hosts unchanged, as arguments of their command line."""
        words: list[str] = []
        for option in self.host_option:
            name, mark, value = option.removeprefix("--").partition("=")
            if name in NAMED_OPTIONS:
                raise InvalidError(f"--host-option {option}: `serve` sets that itself, expected another option")
            words.append(f"--{name}{mark}{value}")
        return tuple(words)

    @property
    def admin_tls(self) -> tuple[Path, Path] | None:
        """Return certificate and key of the admin port; None: it uses no TLS."""
        if self.admin_tls_cert is not None and self.admin_tls_key is not None:
            return self.admin_tls_cert, self.admin_tls_key
        if self.tls_cert is not None and self.tls_key is not None and not is_loopback(self.admin_address):
            return self.tls_cert, self.tls_key
        return None

    def _check_reachable(self) -> None:
        """Check that an admin port that others can reach is protected."""
        if is_loopback(self.admin_address):
            return
        if self.admin_auth == "none":
            raise InvalidError(
                f"--admin-auth none: with --admin-address {self.admin_address}, which other machines can reach, "
                "expected an address of this machine"
            )
        if self.admin_tls is None:
            raise InvalidError(
                f"--admin-address {self.admin_address}: reachable from other machines, and the token would be sent "
                "in clear text, expected --admin-tls-cert and --admin-tls-key (or --tls-cert and --tls-key)"
            )

    def control_options(self) -> ControlOptions:
        """Return the options of the control plane."""
        cpus = os.sched_getaffinity(0) if self.cpus is None else parse_cpus(self.cpus, "--cpus")
        # The cores of other machines are divided by their agents.
        cores = self.cores if self.engine == "local" else "off"
        return ControlOptions(
            state_dir=self.state_dir.resolve(),
            model_roots=tuple(root.resolve() for root in self.model_root),
            webhook=None if self.alert_webhook is None else read_webhook(self.alert_webhook),
            host_settings=HostSettings(
                memory_limit_bytes=self.memory_limit_mb * 1_000_000,
                maintenance_cpus=self.maintenance_cpus,
                load_timeout_seconds=self.load_timeout,
                divided_cpus=len(cpus) if cores != "off" else 0,
                placed_cores=self.engine != "local" and self.cores == "plan",
            ),
            cores=cores,
            cpus=frozenset(cpus),
            allowed_ops=check_allowed(self.allow_op),
            files_dir=self._shared_files(),
            stores=StoreOptions(
                store=None if self.model_store is None else parse_url(self.model_store, "--model-store"),
                cache=None if self.model_cache is None else self.model_cache.resolve(),
                limit_bytes=cache_limit(self.model_cache_mb),
            ),
        )

    def host_options(self, admin_url: str, token_file: Path | None) -> LaunchOptions:
        """Return the options with which hosts are started."""

        def absolute(path: Path | None) -> Path | None:
            return None if path is None else path.resolve()

        return LaunchOptions(
            kind="none" if self.engine in {"agents", "ray"} else self.host,
            processes=self.host_processes,
            address=self.address,
            grpc_port=self.grpc_port,
            rest_port=self.rest_port,
            health_port=self.health_port,
            cpus=self.cpus,
            tls_cert=absolute(self.tls_cert),
            tls_key=absolute(self.tls_key),
            client_ca=absolute(self.client_ca),
            max_message_mb=self.max_message_mb,
            drain_seconds=self.drain_timeout,
            hang_seconds=self.hang_timeout,
            allow_reload_rpc=self.allow_reload_rpc,
            allow_model_control=self.allow_model_control,
            own=self._own_host_options(),
            admin_url=admin_url,
            token_file=absolute(token_file),
        )

    def replica_options(self, url: str, token: str | None) -> ReplicaOptions:
        """Return the options with which replicas are started.

        Parameters
        ----------
        url : str
            The admin port, as nodes reach it.
        token : str or None
            The token of agents.
        """
        launch = replace(self.host_options("", None), kind=self.host)
        # Without an address, hosts listen at that of their node.
        address = self.address if "address" in self.model_fields_set else ""
        host = {**asdict(replace(launch, address=address)), "token_file": None}
        spec = {
            "release": version(),
            "namespace": self.ray_namespace,
            "folder": None if self.replica_folder is None else str(self.replica_folder.absolute()),
            "cores": self.replica_cores,
            "memory_mb": self.replica_memory_mb,
            "model_cache_mb": self.model_cache_mb,
            "host": {name: str(value) if isinstance(value, Path) else value for name, value in host.items()},
        }
        ca = None if self.agent_ca_file is None else self.agent_ca_file.read_text(encoding="ascii")
        limits = (self.least_replicas, self.most_replicas) if self.replicas == "auto" else (int(self.replicas),) * 2
        return ReplicaOptions(spec, {"servers": [url], "token": token, "ca": ca}, self.drain_timeout, limits)

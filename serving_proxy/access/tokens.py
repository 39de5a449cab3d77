# SPDX-License-Identifier: Apache-2.0
"""Tokens, the files in which they are found, and addresses that only this machine can reach.

A proxy that is given no token makes one in its state directory, readable for its own user only. In another folder of
that user it records which state directory belongs to its port, so that the user's clients find the token automatically.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serving_proxy.errors import InvalidError, NotFoundError, ProxyError
from serving_proxy.system.files import read_regular, replace

TOKEN_FILE = "admin.token"
LEADER_HEADER = "x-proxy-leader"
"""In answers of a proxy on standby: the URL of the proxy that leads, to which clients send their token."""
_LEAST_TOKEN = 16
_MOST_BYTES = 4096
_NAMES_OF_HERE = ("127.0.0.1", "[::1]", "0.0.0.0", "[::]")


def read_token(file: Path, named: str = "--token-file ") -> str:
    """Read the token that clients must send.

    Raises
    ------
    InvalidError
        The file cannot be read, or contains no usable token.
    """
    try:
        token = read_regular(file, _MOST_BYTES, "a file with a token").decode("ascii").strip()
    except (ProxyError, ValueError) as error:
        said = str(error) if isinstance(error, ProxyError) else f"{file}: {error}, expected a file with a token"
        raise InvalidError(f"{named}{said}") from error
    if len(token) < _LEAST_TOKEN or any(character.isspace() for character in token):
        raise InvalidError(f"{named}{file}: {len(token)} characters, expected one word of at least {_LEAST_TOKEN}")
    return token


def own_token(state_dir: Path) -> Path:
    """Return the file of a state directory's own token; make it if there is none.

    Raises
    ------
    ProxyError
        It cannot be made, or others can read it.
    """
    file = state_dir / TOKEN_FILE
    try:
        found = file.lstat()
    except FileNotFoundError:
        replace(file, secrets.token_urlsafe(32).encode() + b"\n")
        return file
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
        raise InvalidError(
            f"{file}: mode {found.st_mode & 0o777:o}, expected 600; if others may have read it, delete it, and "
            "the proxy makes another token"
        )
    return file


def is_loopback(address: str) -> bool:
    """Return whether an address or a name can be reached from this machine only."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def announce(url: str, token_file: Path) -> Iterator[None]:
    """Let clients of this user find the token of a proxy while the block runs.

    If no folder of the user can be written to, clients must be given the file.
    """
    file = None
    said = {"url": url, "token_file": str(token_file), "pid": os.getpid(), "started": _started(os.getpid())}
    for folder in _folders():
        with contextlib.suppress(OSError, ProxyError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(folder):
                continue
            _remove_ended(folder)
            file = folder / _name(url)
            replace(file, json.dumps(said).encode() + b"\n")
            break
    try:
        yield
    finally:
        if file is not None and _read(file).get("pid") == os.getpid():
            file.unlink(missing_ok=True)


def find_token(url: str) -> str | None:
    """Return the token of a proxy that this user runs on this machine; None if there is none at the URL.

    The process that recorded the token must still run, so that no other program that uses the port gets it.
    """
    place = urlsplit(url)
    try:
        port = place.port
    except ValueError:
        return None
    if place.hostname is None or port is None or not is_loopback(place.hostname):
        return None
    hosts = [f"[{place.hostname}]" if ":" in place.hostname else place.hostname, *_NAMES_OF_HERE]
    names = [_name(f"{place.scheme}://{host}:{port}") for host in hosts]
    for folder in _folders():
        for name in names:
            found = _read(folder / name) if _is_ours(folder) else {}
            with contextlib.suppress(ProxyError, KeyError, TypeError):
                if _started(int(found["pid"])) == found["started"]:
                    return read_token(Path(found["token_file"]))
    return None


def check_clear_text(server: str) -> None:
    """Raise `InvalidError` if a token would be sent over a network in clear text."""
    place = urlsplit(server)
    if place.scheme == "http" and place.hostname is not None and not is_loopback(place.hostname):
        raise InvalidError(f"{server}: the token would be sent in clear text, expected https")


def _folders() -> list[Path]:
    """Return the folders in which a user's proxies are recorded: a session and a service may have different
    environments.
    """
    user = os.geteuid()
    found = [Path(place) for name in ("XDG_RUNTIME_DIR",) if (place := os.environ.get(name, "")).startswith("/")]
    found.append(Path(f"/run/user/{user}"))
    with contextlib.suppress(RuntimeError):
        found.append(Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"))
    places = [folder / "recprocessor" for folder in found if folder.is_absolute()]
    return [*places, Path(tempfile.gettempdir()) / f"recprocessor-{user}"]


def _is_ours(path: Path) -> bool:
    """Return whether a file or folder belongs to this user and no other user can change it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o022


def _name(url: str) -> str:
    return "admin-" + urlsplit(url).netloc.replace(":", "_") + ".json"


def _read(file: Path) -> dict[str, Any]:
    if not _is_ours(file):
        return {}
    try:
        found = json.loads(read_regular(file, _MOST_BYTES))
    except (InvalidError, NotFoundError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove_ended(folder: Path) -> None:
    for file in folder.glob("admin-*.json"):
        pid = _read(file).get("pid")
        if not isinstance(pid, int) or _started(pid) is None:
            file.unlink(missing_ok=True)


def _started(pid: int) -> int | None:
    """Return when a process of this user began, in the kernel's ticks."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, ValueError, IndexError):
        return None

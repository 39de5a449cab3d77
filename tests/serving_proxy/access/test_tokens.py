# SPDX-License-Identifier: Apache-2.0
"""The token that a proxy makes, who finds it, and what others can see of a state directory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from helpers.proxies.proxy_runs import ROOT, ProxyProcess, ProxyThread, write_model
from helpers.system.certificates import make_authority, make_certificate
from serving_proxy import Client
from serving_proxy.access.tokens import announce, find_token, own_token
from serving_proxy.errors import InvalidError, UnauthenticatedError


def verb(proxy: ProxyProcess, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "serving_proxy", *words, "--server", proxy.url]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_proxy_serves_only_its_own_user(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        assert httpx.get(proxy.url + "/v1/status", trust_env=False, timeout=60).status_code == 401
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        assert verb(proxy, "status").returncode == 0
        # As a user who has another home, and no folder of this proxy.
        (tmp_path / "other").mkdir()
        other = {"XDG_RUNTIME_DIR": "", "XDG_STATE_HOME": str(tmp_path / "other"), "TMPDIR": str(tmp_path / "other")}
        if not Path(f"/run/user/{os.geteuid()}").exists():
            refused = verb(proxy, "status", **other)
            assert (refused.returncode, "admin.token" in refused.stderr) == (2, True)
        token_file = proxy.state_dir / "admin.token"
        assert verb(proxy, "status", "--token-file", str(token_file), **other).returncode == 0
        # It stays the same over a restart.
        token = token_file.read_bytes()
        proxy.kill()
        proxy.start()
        assert token_file.read_bytes() == token
        assert verb(proxy, "status").returncode == 0


def test_other_users_cannot_read_the_state_directory(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state").chmod(0o755)
    before = os.umask(0)
    try:
        with ProxyProcess(tmp_path) as proxy, proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
            assert stat.S_IMODE(proxy.state_dir.stat().st_mode) == 0o700
            loose = []
            for path in proxy.state_dir.rglob("*"):
                # Drafts of files get their final names meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    mode = path.stat().st_mode
                    loose += [f"{path}: {mode:o}"] if mode & 0o077 and not path.is_symlink() else []
            assert loose == []
    finally:
        os.umask(before)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = own_token(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    with pytest.raises(InvalidError, match=r"admin\.token: mode 644, expected 600"):
        own_token(tmp_path)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run" / "recprocessor"


def test_a_token_is_found_by_any_name_of_this_machine_while_its_proxy_runs(mine: Path, tmp_path: Path) -> None:
    file = own_token(tmp_path)
    token = file.read_text(encoding="ascii").strip()
    with announce("http://127.0.0.1:18502", file):
        assert stat.S_IMODE(mine.stat().st_mode) == 0o700
        for url in ("http://127.0.0.1:18502", "http://localhost:18502", "http://127.0.0.1:18502/"):
            assert find_token(url) == token, url
        for url in (
            "http://127.0.0.1:18503",
            "http://192.0.2.1:18502",
            "https://",
            "http://127.0.0.1:99999",
            "nothing",
        ):
            assert find_token(url) is None, url
    assert find_token("http://127.0.0.1:18502") is None


@pytest.mark.parametrize("change", ["dead", "other", "shared", "link", "pipe", "text", "nested"])
def test_invalid_announcements_give_no_token(mine: Path, tmp_path: Path, change: str) -> None:
    with announce("http://127.0.0.1:18502", own_token(tmp_path)):
        (file,) = mine.iterdir()
        said = json.loads(file.read_bytes())
        if change == "dead":
            file.write_text(json.dumps(said | {"pid": 2**22 - 1}), encoding="utf-8")
        elif change == "other":
            file.write_text(json.dumps(said | {"started": said["started"] - 1}), encoding="utf-8")
        elif change == "shared":
            file.chmod(0o666)
        elif change == "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        elif change == "pipe":
            file.unlink()
            os.mkfifo(file, 0o600)
        else:
            file.write_text("x" if change == "text" else "[" * 4000, encoding="utf-8")
        assert find_token("http://127.0.0.1:18502") is None


def test_a_token_is_not_sent_in_clear_text() -> None:
    for server in ("http://192.0.2.1:8502", "http://proxy.example:8502"):
        with pytest.raises(InvalidError, match="the token would be sent in clear text, expected https"):
            Client(server, "a-token-that-is-long-enough")
    Client("http://127.0.0.1:8502", "a-token-that-is-long-enough").close()
    Client("https://proxy.example", "a-token-that-is-long-enough").close()


def test_an_admin_port_has_certificates_of_its_own(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    made = make_certificate(tmp_path, "admin", authority)
    pair = ("--admin-tls-cert", str(made.chain), "--admin-tls-key", str(made.key))
    with ProxyThread(tmp_path, *pair, host="none") as proxy:
        assert proxy.url.startswith("https://")
        with Client(proxy.url.replace("127.0.0.1", "localhost"), verify=authority.chain) as client:
            assert client.status()["models"] == []
        with socket.create_connection(("127.0.0.1", httpx.URL(proxy.url).port or 0)) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in plain.recv(1000)


def test_a_wrong_token_is_not_replaced_by_the_one_that_is_found(proxy: ProxyThread) -> None:
    with Client(proxy.url, "a-token-that-is-another-one") as client, pytest.raises(UnauthenticatedError):
        client.status()

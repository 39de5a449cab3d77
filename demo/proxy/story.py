# SPDX-License-Identifier: Apache-2.0
"""Send the steps of the demo to the proxy, print the command line of each, and record the responses of clients."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from demo.proxy.server import Proxy
from demo.proxy.stages import Stage
from demo.proxy.traffic import RATE_PER_S, Traffic
from demo.terminal import Terminal

MODEL = "movielens"
SHARE = 20.0
_WIDTH = 78
#: Accept fp32 only: in bf16, scores would differ from TensorFlow's by more than the demo accepts.
_OPTIMIZED = ("--optimize", "--precision", "fp32")


class Story:
    """Deploy two versions and move traffic between them; `models` are their folders, as a user would type them."""

    def __init__(self, terminal: Terminal, proxy: Proxy, models: Mapping[int, Path], *, optimize: bool) -> None:
        self._terminal, self._proxy, self._models = terminal, proxy, models
        self._how = _OPTIMIZED if optimize else ()

    def deploy_first(self) -> None:
        """Deploy version 1, which becomes the baseline."""
        self._verb("Deploy version 1", "deploy", MODEL, str(self._models[1]), *self._how, "--wait")
        optimized = "optimized, compared with the original, " if self._how else ""
        self._say(f"It was checked, {optimized}loaded and warmed up; now it serves requests.")

    def under_traffic(self, traffic: Traffic, seconds: float, show: Callable[[], None]) -> list[Stage]:
        """Run the remaining steps while clients send, and return the results of each stage of `seconds`.

        `show` is called while traffic is split.
        """
        names = ", ".join(client.name for client in traffic.clients)
        self._terminal.console.print(f"\nThree clients begin to send, {RATE_PER_S:g} requests/s each: {names}.")
        self._verb("Deploy version 2", "deploy", MODEL, str(self._models[2]), *self._how, "--shadow", "--wait")
        self._say("Each request is mirrored to version 2; its responses are compared and discarded.")
        stages = [self._watch(traffic, "shadow", "deploy 2 --shadow", {1: 100.0, 2: 0.0}, seconds)]
        self._say_guard()
        self._verb("Split the traffic", "traffic", MODEL, f"2={SHARE:g}")
        self._say("The header x-routing-key names the user; a user always gets the same version, from every client.")
        stages.append(self._watch(traffic, "split", f"traffic 2={SHARE:g}", {1: 100.0 - SHARE, 2: SHARE}, seconds))
        self._say_users(stages[-1])
        self._say_guard()
        show()
        self._verb("Promote version 2", "promote", MODEL, "2", "--wait")
        self._say("Version 2 is the baseline; version 1 stays warm.")
        stages.append(self._watch(traffic, "promoted", "promote 2", {1: 0.0, 2: 100.0}, seconds))
        self._verb("Roll back", "rollback", MODEL)
        self._say("All traffic goes to version 1 again.")
        stages.append(self._watch(traffic, "rolled_back", "rollback", {1: 100.0, 2: 0.0}, seconds))
        return stages

    def _verb(self, title: str, *words: str) -> None:
        self._terminal.console.print()
        command(self._terminal, *words)
        with self._terminal.step(title):
            self._proxy.verb(*words)
            self._proxy.settle()

    def _watch(self, traffic: Traffic, name: str, title: str, shares: Mapping[int, float], seconds: float) -> Stage:
        """Let clients send for some time."""
        start = time.monotonic()
        with self._terminal.step("Watch the clients") as advance:
            while (spent := time.monotonic() - start) < seconds:
                advance(int(1000 * spent), int(1000 * seconds))
                time.sleep(min(0.2, seconds - spent))
        stage = Stage(name, title, shares, traffic.sent(start, start + seconds))
        answered = ", ".join(f"{count:,} by version {version}" for version, count in sorted(stage.versions.items()))
        self._say(f"{len(stage.sent):,} requests: {answered}; lost: {sum(request.lost for request in stage.sent)}.")
        return stage

    def _say_users(self, stage: Stage) -> None:
        count = sum(2 in versions for versions in stage.users.values())
        self._say(
            f"Version 2 served {count} of {len(stage.users)} users ({stage.users_share(2):.1f} %); "
            f"{stage.on_both or 'no'} user{'' if stage.on_both == 1 else 's'} got both versions."
        )

    def _say_guard(self) -> None:
        found = self._proxy.client.guard(MODEL)["versions"].get("2")
        verdict = "none yet" if found is None else f"{found['ruling']}, {found['reason']}"
        self._say(f"The guard's verdict on version 2: {verdict}.")

    def _say(self, text: str) -> None:
        self._terminal.console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))


def command(terminal: Terminal, *words: str) -> None:
    """Print a serving-proxy command line, wrapped so that it can be pasted."""
    lines = ["$ serving-proxy"]
    for word in words:
        word = shlex.quote(word)
        if len(lines[-1]) + 1 + len(word) > _WIDTH - 2:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    terminal.console.print(f"[bold cyan]{escape(chr(10).join(lines))}[/]", soft_wrap=True)

# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy guard`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import SERVER, AsJson, CaFile, Name, Server, TokenFile, connect, print_json, seconds
from serving_proxy.cli.rendering import console, render_guard
from serving_proxy.errors import InvalidError

_HELP = """Show what the guard says of a model's versions, or change its limits.

A version that exceeds one, for certain, loses its traffic; a new baseline goes back to the one before. What is not
given stays as it is; `none` takes a limit away.

**Examples**

- `serving-proxy guard ranking`
- `serving-proxy guard ranking --error-percent 0.5 --window 5m --min-requests 1000`
- `serving-proxy guard ranking --min-correlation 0.98 --promote-after 30m`
- `serving-proxy guard ranking --action alert`
"""


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, show_default=False, help=text)


@app.command(name="guard", help=_HELP)
@guarded
def guard_command(
    name: Name,
    action: Annotated[
        str | None, _option("rollback|pause|alert|off", "What is done about a version that is bad: rollback.")
    ] = None,
    error_percent: Annotated[str | None, _option("PERCENT", "Failed requests beyond the baseline's: 1.")] = None,
    nan_percent: Annotated[
        str | None, _option("PERCENT", "NaN and infinite scores beyond the baseline's: 0.1.")
    ] = None,
    min_correlation: Annotated[
        str | None, _option("R", "Rank correlation of shadow scores with the baseline's: none.")
    ] = None,
    max_difference: Annotated[str | None, _option("X", "Mean difference of shadow scores: none.")] = None,
    min_requests: Annotated[int | None, _option("N", "With fewer in the window nothing is judged: 200.")] = None,
    window: Annotated[str | None, _option("TIME", "What is looked at: 60s.")] = None,
    confidence: Annotated[float | None, _option("P", "How sure it has to be: 0.999.")] = None,
    probation: Annotated[str | None, _option("TIME", "So long a new baseline may be rolled back: 1h.")] = None,
    promote_after: Annotated[
        str | None, _option("TIME", "Promote a variant that was within its limits for so long: none.")
    ] = None,
    server: Server = SERVER,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    limits = {
        "error_percent": error_percent,
        "nan_percent": nan_percent,
        "min_correlation": min_correlation,
        "max_difference": max_difference,
    }
    given: dict[str, Any] = {key: _limit(text, key) for key, text in limits.items() if text is not None}
    plain = {"action": action, "min_requests": min_requests, "confidence": confidence}
    given |= {key: value for key, value in plain.items() if value is not None}
    times = {"window_s": (window, "--window"), "probation_s": (probation, "--probation")}
    given |= {key: seconds(text, option) for key, (text, option) in times.items() if text is not None}
    if promote_after is not None:
        given["promote_after_s"] = None if promote_after == "none" else seconds(promote_after, "--promote-after")
    with connect(server, token_file, ca_file) as client:
        found = client.guard(name, **given)
    if as_json:
        print_json(found)
    else:
        console().print(render_guard(name, found))


def _limit(text: str, key: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        option = "--" + key.replace("_", "-")
        raise InvalidError(f"{option}: '{text}', expected a number, or none") from None

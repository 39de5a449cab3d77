# SPDX-License-Identifier: Apache-2.0
"""Send alerts to a webhook, from a bounded queue and with retries, without blocking anything else.

The path and the query of a webhook's URL are as secret as a password: they appear in no log and in no message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from serving_proxy.errors import InvalidError, ProxyError
from serving_proxy.system.files import read_regular

log = logging.getLogger("serving_proxy.alerts")

_MOST_WAITING = 100
_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
ATTEMPTS = 6
_MOST_BYTES = 8192


def read_webhook(text: str) -> str:
    """Return the URL of a webhook, which is given directly or as `@FILE`.

    Raises
    ------
    InvalidError
        It is not a URL; the message does not repeat the text.
    """
    named = "--alert-webhook"
    if text.startswith("@"):
        named = f"--alert-webhook {text}"
        try:
            text = read_regular(Path(text[1:]), _MOST_BYTES, "a file with a URL").decode().strip()
        except (ProxyError, ValueError) as error:
            raise InvalidError(f"{named}: {error}") from error
    try:
        place = urlsplit(text)
        good = place.scheme in {"http", "https"} and bool(place.hostname) and (place.port is None or place.port > 0)
        httpx.URL(text)
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        raise InvalidError(
            f"{named}: {len(text)} characters that are not a URL, expected an http or https URL, or @FILE"
        )
    return text


class Alerts:
    """Posts alerts as JSON to one URL, one after the other.

    Parameters
    ----------
    url : str
        http or https.
    first_pause_s : float [s]
        Pause before the second attempt; it doubles with each attempt.
    """

    def __init__(self, url: str, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._url = url
        self._shown = "{0.scheme}://{0.hostname}/…".format(urlsplit(url))
        self._first_pause_s = first_pause_s
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self.sent = 0
        self.lost = 0

    def send(self, text: str, data: Mapping[str, Any]) -> None:
        """Queue an alert; if the queue is full, the oldest alert is lost."""
        if self._queue.full():
            self._queue.get_nowait()
            self._lose("the queue is full")
        # Chat services show the field `text`.
        self._queue.put_nowait({"text": text, **data})

    async def run(self) -> None:
        """Deliver alerts until the task is cancelled."""
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as http:
            while True:
                alert = await self._queue.get()
                try:
                    await self._deliver(http, alert)
                except Exception as error:
                    # The error's text and its trace may contain the URL.
                    self._lose(type(error).__name__)

    async def _deliver(self, http: httpx.AsyncClient, alert: dict[str, Any]) -> None:
        found = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(min(_LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** (attempt - 1)))
            try:
                answer = await http.post(self._url, json=alert)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                found = f"{type(error).__name__}: {error}".replace(self._url, self._shown)
                continue
            if answer.is_success:
                self.sent += 1
                return
            found = f"HTTP {answer.status_code}"
            if 400 <= answer.status_code < 500 and answer.status_code not in {408, 429}:
                # The webhook would refuse another attempt as well.
                break
        self._lose(found)

    def _lose(self, why: str) -> None:
        self.lost += 1
        log.error("alert lost: %s, expected the webhook at %s to accept it", why, self._shown)

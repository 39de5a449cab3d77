# SPDX-License-Identifier: Apache-2.0
"""Events about a configuration, each recorded once although every look finds it again."""

from __future__ import annotations

from serving_proxy.deploy.control import Control


class RepeatedNotes:
    """Records events of the kind `config`."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._entered: dict[str, str] = {}

    def enter(self, subject: str, message: str, model: str | None = None) -> None:
        """Record an event, unless the last one about the same subject had the same message.

        Parameters
        ----------
        subject : str
            The subject: a version `ranking/3`, a model `ranking`, or, if it concerns no model, "" or "/settings".
        model : str or None
            The model of the event; None: the subject up to the first "/".
        """
        if self._entered.get(subject) != message:
            self._control.note("config", message, subject.partition("/")[0] if model is None else model)
            self._entered[subject] = message

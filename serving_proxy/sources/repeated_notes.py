# SPDX-License-Identifier: Apache-2.0
"""Events about a configuration, each entered once although it is found again at every look."""

from __future__ import annotations

from serving_proxy.deploy.control import Control


class RepeatedNotes:
    """Enters events of the kind `config`."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._entered: dict[str, str] = {}

    def enter(self, subject: str, message: str, model: str | None = None) -> None:
        """Enter an event, once until there is another one about the same subject.

        Parameters
        ----------
        subject : str
            What it is about: `ranking/3`, a model `ranking`, or of no model "" and "/settings".
        model : str or None
            Whose event it is; None: what stands before the first "/" of the subject.
        """
        if self._entered.get(subject) != message:
            self._control.note("config", message, subject.partition("/")[0] if model is None else model)
            self._entered[subject] = message

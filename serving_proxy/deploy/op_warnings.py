# SPDX-License-Identifier: Apache-2.0
"""Look once at versions that were deployed before ops were checked: they stay deployed, and the operator is warned."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.deploy.control import Control
from serving_proxy.errors import ProxyError
from serving_proxy.gates.ops import reached_ops
from serving_proxy.gates.saved_model import read_meta_graph
from serving_proxy.records.models import Note


async def warn_of_ops(control: Control) -> None:
    """Record an event for each version that reaches ops which would be refused today."""
    for name, model in list(control.models.items()):
        for version in list(model.versions.values()):
            if version.desired and version.ops is None and version.path is not None:
                with control.recording_faults(f"ops of {name}/{version.number}"):
                    await _warn(control, name, version.number, Path(version.path))


async def _warn(control: Control, name: str, number: int, path: Path) -> None:
    try:
        found = await asyncio.to_thread(lambda: reached_ops(read_meta_graph(path)))
    except ProxyError:
        # Hosts report what is wrong with it, or have it in memory and will not read it again.
        return
    model = control.models.get(name)
    version = None if model is None else model.versions.get(number)
    if model is None or version is None or version.ops is not None or version.path != str(path):
        return
    ops = tuple(sorted({use.op for use in found}))
    changed = model.with_version(version.model_copy(update={"ops": ops}))
    refused = [op for op in ops if op not in {*control.options.allowed_ops, *version.allowed_ops}]
    first = {use.op: str(use) for use in reversed(found)}
    notes = (
        Note(
            kind="ops",
            message=f"{name}/{number}: {'; '.join(first[op] for op in refused)}. It stays deployed; another deployment "
            f"needs {' '.join(f'--allow-op {op}' for op in refused)}",
            model=name,
            version=number,
            data={"ops": refused},
        ),
    )
    control.store([changed], notes if refused else ())

# SPDX-License-Identifier: Apache-2.0
"""Check a `desired.json` by the rules of hosts, before it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass

from processor._ffi import NULL, ffi
from processor._lib import get_rules
from processor._tensors import c_text
from processor.errors import check_error

# Most descriptions of faults fit; if the buffer is too small, the check runs a second time.
_ROOM = 16 * 1024


@dataclass(frozen=True)
class DesiredFault:
    """Describe a part of a desired state that hosts would refuse while they apply the rest.

    Attributes
    ----------
    model : str or None
        None: the fault concerns no model.
    version : int or None
        None: the whole model is refused.
    message : str
        Names the place in the file, the value found there and the expected value.
    """

    model: str | None
    version: int | None
    message: str


def check_desired(text: str | bytes, cpus: str | None = None) -> tuple[DesiredFault, ...]:
    """Check a desired state as hosts do.

    The check opens no model, and loads neither TensorFlow's kernels nor the whole library.

    Parameters
    ----------
    text : str or bytes
        The content of a `desired.json`.
    cpus : str, optional
        CPUs that hosts may use, for example "0-7"; by default the CPUs of this process.

    Returns
    -------
    tuple of DesiredFault
        Empty: hosts accept all of it.

    Raises
    ------
    InvalidArgumentError
        If hosts would refuse the whole file.
    NotFoundError, FailedPreconditionError
        If the library is missing, or is not the one that this package was made for.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    lib = get_rules()
    c_cpus = NULL if cpus is None else c_text("cpus", cpus)
    size, error = ffi.new("size_t *"), ffi.new("processor_error *")
    room = _ROOM
    while True:
        faults = ffi.new("char[]", room)
        check_error(lib.processor_desired_check(data, len(data), c_cpus, faults, room, size, error), error)
        if size[0] < room:
            break
        room = size[0] + 1
    return tuple(DesiredFault(**load) for load in json.loads(ffi.string(faults)))

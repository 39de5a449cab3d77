# SPDX-License-Identifier: Apache-2.0
"""Whether hosts would serve a `desired.json`, by their own rules and before it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass

from processor._ffi import NULL, ffi
from processor._lib import get_rules
from processor._tensors import c_text
from processor.errors import check_error

# Few states have that much to tell; a larger one is asked a second time.
_ROOM = 16 * 1024


@dataclass(frozen=True)
class DesiredFault:
    """A part of a desired state that hosts would refuse, while they follow the rest.

    Attributes
    ----------
    model : str or None
        None: no model is concerned.
    version : int or None
        None: the model is refused as a whole.
    message : str
        Names the place in the file, what stands there and what was expected.
    """

    model: str | None
    version: int | None
    message: str


def check_desired(text: str | bytes, cpus: str | None = None) -> tuple[DesiredFault, ...]:
    """Check a desired state as hosts do.

    No model is opened, and neither TensorFlow's kernels nor the whole library are loaded for it.

    Parameters
    ----------
    text : str or bytes
        The content of a `desired.json`.
    cpus : str, optional
        CPUs that hosts may use, as in "0-7"; by default those of this process.

    Returns
    -------
    tuple of DesiredFault
        Empty: hosts take all of it.

    Raises
    ------
    InvalidArgumentError
        Hosts would refuse the file as a whole.
    NotFoundError, FailedPreconditionError
        The library is not there, or another one than this package was made for.
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

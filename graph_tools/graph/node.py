# SPDX-License-Identifier: Apache-2.0
"""A node of a graph and the references between nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Output(NamedTuple):
    """Output `port` of the node with the name `node`; TensorFlow writes `node:port`."""

    node: str
    port: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"

    @staticmethod
    def parse(text: str) -> Output:
        """Read `name` or `name:port`."""
        name, colon, port = text.rpartition(":")
        return Output(name, int(port)) if colon and port.isdigit() else Output(text, 0)


@dataclass
class Node:
    """A node: an op with its inputs and attributes. Change inputs only through `Graph`, which tracks the users.

    Attributes
    ----------
    name, op : str
    inputs : list of Output
    controls : list of str
        Names of nodes that run before this one.
    attrs : dict of str to AttrValue
    device : str
    """

    name: str
    op: str
    inputs: list[Output] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    device: str = ""

    def output(self, port: int = 0) -> Output:
        return Output(self.name, port)

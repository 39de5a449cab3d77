# SPDX-License-Identifier: Apache-2.0
"""Divide cores among versions: what is known of them, plans, control, and CPUs for `desired.json`.

Only `serving_proxy.cores.loop` reads or writes a host's files; the other modules do not.
"""

from serving_proxy.cores.allocator import Allocator
from serving_proxy.cores.tenants import DeployedTenant, manual_cpus, tenants

__all__ = ["Allocator", "DeployedTenant", "manual_cpus", "tenants"]

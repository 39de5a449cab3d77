# SPDX-License-Identifier: Apache-2.0
"""Which version gets which cores: what is known of versions, plans, control, and CPUs for `desired.json`.

Nothing here reads a file of a host or writes one; `serving_proxy.cores.loop` does.
"""

from serving_proxy.cores.allocator import Allocator
from serving_proxy.cores.tenants import DeployedTenant, manual_cpus, tenants

__all__ = ["Allocator", "DeployedTenant", "manual_cpus", "tenants"]

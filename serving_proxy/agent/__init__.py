# SPDX-License-Identifier: Apache-2.0
"""The agent of a machine: follows the proxy's desired state, fetches what it names, and reports what hosts do.

It writes the `desired.json` that the hosts of its machine watch. Hosts need neither the agent nor the proxy to serve.
"""

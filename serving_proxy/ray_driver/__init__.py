# SPDX-License-Identifier: Apache-2.0
"""The processes of `serve --engine ray`: the one that talks to Ray, and the actors that run agents and hosts."""

# SPDX-License-Identifier: Apache-2.0
"""The life of versions: states, what verbs do, version policies, and the step of the control loop. Pure functions."""

# SPDX-License-Identifier: Apache-2.0
"""Discrete-event simulation of models that share a machine: policies, capacity, interference."""

# SPDX-License-Identifier: Apache-2.0
"""Artifacts in stores such as S3: fetched into the content store of a machine, and uploaded from there."""

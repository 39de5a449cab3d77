# SPDX-License-Identifier: Apache-2.0
"""The admin API: every verb as REST, with an OpenAPI description, events as a stream, metrics and health."""

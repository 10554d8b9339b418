# SPDX-License-Identifier: Apache-2.0
"""Backends: each finds the devices of one kind of hardware on this node, and configures them for claims."""

# SPDX-License-Identifier: Apache-2.0
"""What the cluster says of it: devices, nodes, claims, pods."""

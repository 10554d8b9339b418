# SPDX-License-Identifier: Apache-2.0
"""What `explain` knows about devices, nodes, claims and pods before it checks any device."""

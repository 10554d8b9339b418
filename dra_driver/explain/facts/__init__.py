# SPDX-License-Identifier: Apache-2.0
"""What is known before any device is looked at: of devices, nodes, claims and pods."""

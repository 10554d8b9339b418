# SPDX-License-Identifier: Apache-2.0
"""The hardware process: all that opens the NVIDIA library or a device file. It is small, and imports nothing of the daemon."""

# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs. `docs/nvidia.md` is the page for admins; `facts.py` has the values that all files of this package exchange."""

# SPDX-License-Identifier: Apache-2.0
"""A Dynamic Resource Allocation driver for accelerators on Kubernetes."""

__version__ = "0.1.0"

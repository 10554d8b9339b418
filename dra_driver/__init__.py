# SPDX-License-Identifier: Apache-2.0
"""A Dynamic Resource Allocation driver for accelerators on Kubernetes."""

__version__ = "0.1.0"
PROJECT = "dra-driver"
"""The name of the project, of its command and of its Helm chart."""
PACKAGE = "dra-driver"
"""The name of the Python distribution. It is in no package index; a package of this name in a public one is not ours."""
IMAGE = "dra-driver/dra-driver"
"""The name of the container image, without a registry: it is in none."""

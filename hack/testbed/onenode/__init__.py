# SPDX-License-Identifier: Apache-2.0
"""A real one-node Kubernetes in namespaces of its own, for the end-to-end tests."""

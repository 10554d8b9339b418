# SPDX-License-Identifier: Apache-2.0
"""The classic device plugin API: the driver's side of it, and the kubelet's files that belong to it."""

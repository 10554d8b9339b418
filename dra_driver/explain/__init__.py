# SPDX-License-Identifier: Apache-2.0
"""Why is a pod or claim pending, and what would help? The package is pure: the input is a ClusterState, the output a Report."""

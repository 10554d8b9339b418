# SPDX-License-Identifier: Apache-2.0
"""What is asked about: pods, claims, templates, workloads and manifests."""

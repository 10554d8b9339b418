# SPDX-License-Identifier: Apache-2.0
"""The API server: what the cluster says."""

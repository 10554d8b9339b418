# SPDX-License-Identifier: Apache-2.0
"""CEL as Kubernetes evaluates it over `device`."""

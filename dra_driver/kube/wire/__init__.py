# SPDX-License-Identifier: Apache-2.0
"""One module for each served version of resource.k8s.io: dict to model and back."""

# SPDX-License-Identifier: Apache-2.0
"""The conversion between JSON objects of any served version of resource.k8s.io and the values of `model/api/`."""

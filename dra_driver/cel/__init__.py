# SPDX-License-Identifier: Apache-2.0
"""Compiles and evaluates CEL expressions about the variable `device`, as Kubernetes does."""

# SPDX-License-Identifier: Apache-2.0
"""The implementations of CEL functions, one file for each library."""

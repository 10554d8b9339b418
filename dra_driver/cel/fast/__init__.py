# SPDX-License-Identifier: Apache-2.0
"""Evaluate for very many devices: a generated Python function, which leaves what it cannot do to the exact program."""

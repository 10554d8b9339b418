# SPDX-License-Identifier: Apache-2.0
"""Evaluates an expression for very many devices with a generated Python function. If it gives up, the exact program runs."""

# SPDX-License-Identifier: Apache-2.0
"""From the text of an expression to its tree, and back."""

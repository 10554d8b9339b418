# SPDX-License-Identifier: Apache-2.0
"""Type checking: each name must be declared, and each call needs an overload that accepts its arguments."""

# SPDX-License-Identifier: Apache-2.0
"""Is each name declared, does each function take what it is given, and what comes out?"""

# SPDX-License-Identifier: Apache-2.0
"""Which part of a selector said no, with which values, and what was meant?"""

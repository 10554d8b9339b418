# SPDX-License-Identifier: Apache-2.0
"""The process: which parts run, and is the process alive?"""

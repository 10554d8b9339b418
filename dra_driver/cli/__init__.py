# SPDX-License-Identifier: Apache-2.0
"""The command line: arguments, exit codes, and all text that people read."""

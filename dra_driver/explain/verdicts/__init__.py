# SPDX-License-Identifier: Apache-2.0
"""The members of `Verdict`, by what they are about."""

# SPDX-License-Identifier: Apache-2.0
"""The exact evaluator: it has the results, the error messages and the actual cost of the scheduler's cel-go."""

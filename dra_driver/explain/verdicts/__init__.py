# SPDX-License-Identifier: Apache-2.0
"""The members of `Verdict`: one module each for devices, requests, claims, pods, and the general ones."""

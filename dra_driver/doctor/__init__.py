# SPDX-License-Identifier: Apache-2.0
"""What is wrong on this node, what does it mean, and which command mends it?"""

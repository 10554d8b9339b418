# SPDX-License-Identifier: Apache-2.0
"""What the functions of the environment do, one file for each library."""

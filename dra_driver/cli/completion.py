# SPDX-License-Identifier: Apache-2.0
"""`dra-driver completion`: print the script that lets a shell complete command lines."""

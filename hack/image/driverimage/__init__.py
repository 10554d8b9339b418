# SPDX-License-Identifier: Apache-2.0
"""The driver's container image, made without a registry and without a container engine.

An image is a list of layers, a layer is a tar, and a tar is what a tree of files looks like in
one row. So everything here makes trees: of Debian packages (`debian`), of locked wheels (`wheels`)
and of the driver (`driver`); `elf` says which libraries programs need, `bytecode` compiles,
`cache` remembers layers, `archive` writes the image.
"""

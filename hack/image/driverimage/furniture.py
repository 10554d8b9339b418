# SPDX-License-Identifier: Apache-2.0
"""What does a root filesystem need that no package and no wheel brings?

Who root is, in which order names are looked up, and places where others mount. /lib is a link into
/usr, so that each file has one path, whoever names it.
"""

from driverimage.python import Layout
from driverimage.tree import File, Folder, Link, Tree

FURNITURE: Tree = {
    "etc/passwd": File(b"root:x:0:0:root:/:/sbin/nologin\n"),
    "etc/group": File(b"root:x:0:\n"),
    "etc/nsswitch.conf": File(b"passwd: files\ngroup: files\nhosts: files dns\n"),
    "lib": Link("usr/lib"),
    "tmp": Folder(0o1777),
    "var/run": Link("../run"),
    **dict.fromkeys(("dev", "proc", "run", "sys", "var/lib"), Folder()),
}


def in_usr(path: str) -> str:
    """Where a path lies when /lib and /lib64 are links into /usr."""
    path = path.lstrip("/")
    return f"usr/{path}" if path.startswith(("lib/", "lib64/")) else path


def furniture(loader: str, layout: Layout) -> Tree:
    """The furniture, with the links that lead to the loader (its path as programs name it) and Python.

    The chart's clean-up pod asks for Python by the name that every distribution has.
    """
    lib64: Tree = {"lib64": Link("usr/lib64")} if loader.startswith("/lib64/") else {}
    return {**FURNITURE, **lib64, "usr/bin/python3": Link(f"/{layout.interpreter}")}

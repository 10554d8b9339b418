# SPDX-License-Identifier: Apache-2.0
"""Where is Python in the image, and which part of its standard library is left out?

Everything that is not named here stays. What is named is of no use to a daemon, or is dead weight
beside something that stays. Nothing of the driver or its libraries may import what is left out: a
test reads all their imports.
"""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass

from driverimage.tree import File

ENTRY_POINT = "usr/local/bin/dra-driver"

# Why -> modules, packages and files below the folder of the standard library.
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "tests, and modules for writing them": (
        "test", "unittest", "doctest.*", "_ctypes_test*", "_test*", "_xxtestfuzz*", "xx*",
    ),
    "for a person at a terminal": (
        "idlelib", "tkinter", "turtle.*", "turtledemo", "curses", "_curses*", "readline.*",
        "pdb.*", "bdb.*", "pydoc.*", "pydoc_data", "webbrowser.*",
    ),
    "for building and installing": (
        "ensurepip", "venv", "distutils", "lib2to3", "config-*", "_sysconfigdata__linux_*", "zipapp.*",
        "_distutils_system_mod.*", "EXTERNALLY-MANAGED", "site-packages", "dist-packages",
        "sitecustomize.py", "_osx_support.*",
    ),
    "formats and protocols that nobody speaks here": (
        "xml", "xmlrpc", "plistlib.*", "mailbox.*", "imaplib.*", "smtplib.*", "smtpd.*",
        "nntplib.*", "ftplib.*", "poplib.*", "telnetlib.*", "cgi.*", "cgitb.*", "aifc.*", "sunau.*",
        "wave.*", "audioop.*", "ossaudiodev.*", "sndhdr.*", "chunk.*", "dbm", "_dbm.*", "_gdbm.*",
        "nis.*", "crypt.*", "_crypt.*", "asyncore.*", "asynchat.*", "_uuid.*", "bz2.*", "_bz2.*", "bz2_codec.*",
        "lzma.*", "_lzma.*",
    ),
    "for Windows": ("windows_*", "popen_spawn_win32.*", "mbcs.*", "oem.*"),
    "written in C as well": ("_pydecimal.*", "_pyio.*"),
    "codecs of other than Unicode text": (
        "_codecs_*", "_multibytecodec.*", "cp[0-9]*", "mac_*", "iso8859_*", "iso2022_*", "koi8_*",
        "kz1048.*", "ptcp154.*", "tis_620.*", "big5*", "euc_*", "gb*", "hz.*", "johab.*",
        "shift_jis*", "palmos.*", "hp_roman8.*",
    ),
}  # fmt: skip
TRANSPARENT = (
    "lib-dynload",
    "encodings",
    "asyncio",
    "multiprocessing",
)  # folders whose members are judged one by one
KEPT_CODECS = ("cp437.py", "iso8859_1.py")  # zipfile's, and HTTP's


def _judged_name(path: str) -> str:
    parts = path.split("/")
    return parts[1] if parts[0] in TRANSPARENT and len(parts) > 1 else parts[0]


def why_left_out(path: str) -> str | None:
    """The reason why a path of the standard library is not in the image; None if it is."""
    name = _judged_name(path)
    if "__pycache__" in path or name in KEPT_CODECS:
        return None if name in KEPT_CODECS else "compiled for another place"
    for why, patterns in LEFT_OUT.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return why
    return None


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of the interpreter and of the folder of modules, and the version that both are for."""

    interpreter: str
    modules: str
    version: str

    @property
    def bytecode_tag(self) -> str:
        """How bytecode in a __pycache__ is marked."""
        return f"cpython-{self.version.replace('.', '')}"

    def launcher(self) -> File:
        """The entry point: modules are searched for in the image only.

        -I is for programs that put PYTHONPATH into the environment of every pod, as some that
        instrument Python do. Their modules would run as root, with the driver's token.
        """
        lines = (
            f"#!/{self.interpreter} -I",
            "import sys",
            "",
            "from dra_driver.__main__ import driver",
            "",
            "sys.exit(driver())",
            "",
        )
        return File("\n".join(lines).encode(), executable=True)

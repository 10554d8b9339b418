# SPDX-License-Identifier: Apache-2.0
"""How is text from outside made safe for a terminal, a log or an Event?"""

CUT = "…"


def printable(text: str, *, most: int = 0) -> str:
    r"""The text with control characters and direction marks replaced by escapes such as \x1b, cut after `most` characters."""
    if most and len(text) > most:
        text = text[:most] + CUT
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )

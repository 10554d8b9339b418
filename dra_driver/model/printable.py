# SPDX-License-Identifier: Apache-2.0
"""How is text from outside made safe for a terminal, a log or an Event?"""

CUT = "…"


def without_middle(text: str, most: int) -> str:
    """The text, if it has no more than `most` characters, else its beginning and end with a mark between them."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} {CUT} {text[-half:]}"


def printable(text: str, *, most: int = 0) -> str:
    r"""The text with control characters and direction marks replaced by escapes such as \x1b, cut after `most` characters."""
    if most and len(text) > most:
        text = text[:most] + CUT
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )

"""The colours of `dibs top`: what the style names of `lines` mean in the application, and on the first screen. Pure.

The names of Textual are colours of web pages, of which the pure ones are too loud for whole bars. A job has the same
colour here as on the page.
"""

from __future__ import annotations

from dibs.cli.top.lines import Line

#: By name: the style in the application, and the SGR codes of the first screen.
STYLES = {
    "bold": ("bold", "1"), "dim": ("dim", "2"), "bold red": ("bold #ff7b72", "1;31"),
    "green": ("#3fb950", "32"), "yellow": ("#e3b341", "33"), "red": ("#ff7b72", "31"), "cyan": ("#76c7e8", "36"),
    "magenta": ("#a371f7", "35"), "track": ("#4a525c", "90"),
    # Bars of the timeline, and what is written on them.
    "run": ("#2f6fd6", "34"), "past": ("#2f6b40", "32"), "fail": ("#b8403e", "31"), "other": ("#59626d", "90"),
    "plan": ("#6a50a0", "35"),
    "on run": ("bold #ffffff on #2f6fd6", "7;34"), "on past": ("#d5ecdb on #2f6b40", "7;32"),
    "on fail": ("bold #ffffff on #b8403e", "7;31"), "on other": ("#ffffff on #59626d", "7;90"),
    "on plan": ("#eae1ff on #46366b", "7;35"),
}  # fmt: skip


def styled(line: Line) -> Line:
    """Return a line with the styles of the application."""
    return tuple((text, name_of(style)) for text, style in line)


def name_of(style: str) -> str:
    """Return a style as the application writes it."""
    return STYLES[style][0] if style else ""


def painted(line: Line, *, has_colour: bool) -> str:
    """Return a line as a terminal draws it."""
    if not has_colour:
        return "".join(text for text, _ in line)
    return "".join(f"\x1b[{STYLES[style][1]}m{text}\x1b[0m" if style else text for text, style in line)

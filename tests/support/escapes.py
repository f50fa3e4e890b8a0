"""More texts that try to be more than text: terminal control sequences, and paths in URLs."""

from __future__ import annotations

from payloads import MARKUP

TERMINAL = (
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;http://evil\x07click\x1b]8;;\x07",
    "\x1b[31mred", "\x1bc", "\x1b[?1049h", "\x1bP+q544e\x1b\\", "\x9b2J", "\x9d0;x\x9c", "a\rb", "a\nb", "a\tb",
    "\x07\x07", "\x08\x08\x08", "\x7f", "\u202eevil\u202c", "\u200bzero\u200b", "\ufeffbom", "\u2028line",
    "\u2066x\u2069", "\x00nul", "\x1b[6n", "\x0e\x0f",
)  # fmt: skip
PLACES = (
    "../../../../etc/passwd", "/etc/passwd", "..", ".", "..%2f..%2fetc%2fpasswd", "%2e%2e%2fweb.json",
    "....//....//etc/passwd", "..\\..\\etc\\passwd", "file:///etc/passwd", "~/.ssh/id_rsa", "web.json", "../web.json",
    "../../web.json", "dibs.db", "a" * 5000, "-rf", "--help", "con", "*", "%00", "%c0%ae%c0%ae/", "index.html%00.js",
    "app.js/../../web.json", "/", "//",
)  # fmt: skip
#: Some of everything.
ALL = (*MARKUP[::2], *TERMINAL, *PLACES)

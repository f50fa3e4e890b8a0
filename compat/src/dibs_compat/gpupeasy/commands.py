"""The commands `gpupeasy-server` and `gpupeasy-gui`: what people edited in two scripts, as options."""

from __future__ import annotations

import argparse

from dibs_compat.gpupeasy import servers


def server() -> None:
    """Be `gpupeasy-server`."""
    parser = argparse.ArgumentParser(
        prog="gpupeasy-server", description="GPUPeasy's server on the queue of dibs: one job at a time on each GPU."
    )
    parser.add_argument(
        "--gpus",
        nargs="*",
        metavar="GPU",
        help="what CUDA_VISIBLE_DEVICES becomes, one word for each job that may run: 0 1, groups 0,1 2,3, '' for a job "
        "without GPU (default: every GPU of this machine, or 0 1 2 3 where none is known)",
    )
    parser.add_argument("--logdir", help="folder of logs.out (default: gpupeasy in the state folder of dibs)")
    _add_address(parser, servers.CORE_PORT)
    parser.add_argument("--debug", action="store_true", help="show the log on stderr")
    args = parser.parse_args()
    servers.run_core(args.gpus, _address(args), args.logdir, is_loud=args.debug)


def page() -> None:
    """Be `gpupeasy-gui`."""
    parser = argparse.ArgumentParser(prog="gpupeasy-gui", description="GPUPeasy's page.")
    parser.add_argument("--core-host", default="127.0.0.1", help="where the server is (default: %(default)s)")
    parser.add_argument("--core-port", type=int, default=servers.CORE_PORT, help="its port (default: %(default)s)")
    _add_address(parser, servers.PAGE_PORT)
    args = parser.parse_args()
    servers.run_page(args.core_host, args.core_port, _address(args))


def _add_address(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=port, help="port to listen on; 0 for any (default: %(default)s)")
    parser.add_argument(
        "--insecure-bind", action="store_true", help="allow an address that others reach: a shell for everyone"
    )


def _address(args: argparse.Namespace) -> servers.Address:
    return servers.Address(args.host, args.port, is_open=args.insecure_bind)

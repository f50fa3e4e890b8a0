"""`python -m benchmarks`, as `scripts/bench` starts it: chooses, measures part by part, prints, and writes results."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from collections.abc import Sequence

from benchmarks import disks, machine, parts, plans, reports, results, sandboxes, stamps, targets, tools
from benchmarks.parts import Part
from benchmarks.plans import Plan, Sizes
from benchmarks.results import Findings
from benchmarks.series import Book
from benchmarks.tools.tool import Tool

#: Processes that want to run, per core, from which on the numbers should not be believed.
BUSY = 0.3


def main(words: Sequence[str]) -> None:
    """Measure what was asked for."""
    asked = _options().parse_args(words)
    # So that it cleans up behind itself also then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    here, left_out = _find_tools(asked.tools)
    chosen = [part for part in parts.ALL if asked.part in (None, part.name)]
    with disks.opened() as (work, words_on_disk):
        try:
            plan = Plan(_sizes(asked), tuple(here), work, stamps.build(work))
            found = Findings(machine.describe(work, words_on_disk), plan.sizes, chosen, here, left_out, {}, Book())
            print(results.introduction(found), flush=True)
            for number, part in enumerate(chosen, 1):
                _measure(part, plan, found, f"{number} of {len(chosen)}")
                # Whoever is interrupted has at least this much.
                results.write(found, "partial")
        finally:
            sandboxes.end_all(work)
    print(f"\n{reports.verdicts(targets.judge(found.book.series()))}")
    is_whole = not (asked.quick or asked.part or asked.tools or asked.seconds or asked.streams or asked.deleted_files)
    name = "latest" if is_whole else "partial"
    results.write(found, name)
    print(f"\nwritten after {plans.so_far()}: benchmarks/results/{name}.md, .json, .svg")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="How fast dibs is, beside other tools.")
    parser.add_argument("--quick", action="store_true", help="see whether everything works; the numbers mean nothing")
    parser.add_argument("--part", choices=[part.name for part in parts.ALL], help="one part only")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--seconds", type=int, help="of the part load: for how long; jobs are as dense as ever")
    parser.add_argument("--streams", type=int, help="of the part load: how many listen")
    parser.add_argument("--deleted-files", type=int, help="of jobs: files made and deleted on the disk just before")
    parser.add_argument("--tools", help=f"only these, separated by commas: {', '.join(map(_word, tools.ALL))}")
    return parser


def _sizes(asked: argparse.Namespace) -> Sizes:
    sizes = plans.QUICK if asked.quick else plans.FULL
    for name in ("rounds", "seconds", "streams", "deleted_files"):
        if getattr(asked, name) is not None and getattr(asked, name) < 1:
            sys.exit(f"scripts/bench: --{name.replace('_', '-')} expected 1 or more, got {getattr(asked, name)}.")
    if asked.rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=asked.rounds, own_rounds=asked.rounds)
    if asked.seconds is not None:
        jobs = max(1, round(sizes.load_jobs * asked.seconds / sizes.load_for_s))
        sizes = dataclasses.replace(sizes, load_for_s=asked.seconds, load_jobs=jobs)
    if asked.streams is not None:
        sizes = dataclasses.replace(sizes, load_streams=asked.streams)
    if asked.deleted_files is not None:
        sizes = dataclasses.replace(sizes, deleted_files=asked.deleted_files)
    return sizes


def _word(tool: Tool) -> str:
    return tool.name.lower().replace(" ", "-")


def _find_tools(asked: str | None) -> tuple[dict[Tool, str], dict[str, str]]:
    """Return the wanted tools that are here with their versions, and why others are not."""
    wanted = asked.split(",") if asked else [_word(tool) for tool in tools.ALL]
    known = {_word(tool): tool for tool in tools.ALL}
    if unknown := [word for word in wanted if word not in known]:
        sys.exit(f"scripts/bench: --tools expected some of {', '.join(known)}, got {', '.join(unknown)}.")
    versions = {known[word]: known[word].version() for word in known if word in wanted}
    here = {tool: version for tool, version in versions.items() if version is not None}
    left_out = {tool.name: f"not installed ({tool.package})" for tool in versions if tool not in here}
    if not here:
        sys.exit("scripts/bench: none of the tools is installed.")
    return here, left_out


def _measure(part: Part, plan: Plan, found: Findings, which: str) -> None:
    load = found.loads[part.name] = machine.load()
    print(f"\n== {part.name} (part {which}, {plans.so_far()} so far, load {load:.2f})", flush=True)
    if load > BUSY * found.machine.cores:
        found.book.note(part.name, f"the machine was busy before this began: load {load:.2f}")
    began = time.monotonic()
    part.measure(plan, found.book)
    print(f"\n{reports.part(part, found.book.series(), found.book)}", flush=True)
    print(f"   took {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

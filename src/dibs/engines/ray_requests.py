"""What Ray is asked for: the resources of a start, read from what the job needs and from options as people type them.

Pure.
"""

from __future__ import annotations

import fnmatch
import json
import math
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from dibs import errors
from dibs.engines.protocol import Needs, Node, Start
from dibs.model import units

#: Seconds for which Ray lets a job that it stops end by itself. Its guardian ends ours, after the grace of the cancel.
STOP_WAIT_S = 7 * 86400
#: Ray's share of a node's type that makes it count and leaves room for thousands.
TYPE_SHARE = 0.001


class Resources(NamedTuple):
    """What one start takes of a node."""

    gpus: int
    cpus: float
    memory: int
    custom: dict[str, float]
    labels: dict[str, str]


class Options(NamedTuple):
    """Options with the names that `ray job submit` has for them."""

    cpus: float | None = None
    memory: int | None = None
    custom: dict[str, float] = {}
    labels: dict[str, str] = {}


def parse_options(text: str) -> Options:
    """Read options such as `--entrypoint-resources '{"ssd": 1}'`; raise an error that names the wrong one."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise errors.UserError(f"options of Ray: expected balanced quotes, got: {text}") from error
    values: dict[str, Any] = {}
    while words:
        name, is_joined, value = words.pop(0).partition("=")
        if name not in _READERS:
            raise errors.UserError(f'options of Ray: expected some of {", ".join(_READERS)}, got "{name}".')
        if not is_joined:
            if not words:
                raise errors.UserError(f"options of Ray: expected a value after {name}.")
            value = words.pop(0)
        key, read, expected = _READERS[name]
        try:
            values[key] = read(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise errors.UserError(f'options of Ray: {name} expected {expected}, got "{value}".') from error
    return Options(**values)


def _count(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return value


def _custom(text: str) -> dict[str, float]:
    return {str(name): _count(str(value)) for name, value in json.loads(text).items()}


def _labels(text: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in json.loads(text).items()}


_READERS: dict[str, tuple[str, Any, str]] = {
    "--entrypoint-num-cpus": ("cpus", _count, "a number"),
    "--entrypoint-memory": ("memory", lambda text: int(_count(text)), "a number of bytes"),
    "--entrypoint-resources": ("custom", _custom, 'a JSON object such as {"ssd": 1}'),
    "--entrypoint-label-selector": ("labels", _labels, 'a JSON object such as {"rack": "4"}'),
}


def resources(needs: Needs, nodes: Sequence[Node]) -> Resources:
    """Return what to ask of Ray. Without any resource Ray would put the job on the head node, uncounted."""
    options = parse_options(needs.options)
    cpus = needs.cpus or options.cpus or (0.0 if needs.gpus else 1.0)
    custom = dict(options.custom)
    if kind := _type_resource(needs, nodes):
        custom[kind] = TYPE_SHARE
    return Resources(needs.gpus, cpus, needs.mem or options.memory or 0, custom, dict(options.labels))


def _type_resource(needs: Needs, nodes: Sequence[Node]) -> str | None:
    """Return Ray's resource for the wanted type of GPU; of several types that fit, the one with most free GPUs."""
    if not needs.gpu_type:
        return None
    fitting = [node for node in nodes if node.is_up and has_type(node, needs.gpu_type)]
    fitting.sort(key=lambda node: -(node.free_gpus or 0))
    kinds = [kind for node in fitting for kind in node.gpu_type.split(",") if _matches(kind, needs.gpu_type)]
    return f"accelerator_type:{kinds[0]}" if kinds else None


def has_type(node: Node, wanted: str) -> bool:
    """Tell whether a node has GPUs of a type, given as a glob or a part of the name."""
    return any(_matches(kind, wanted) for kind in node.gpu_type.split(","))


def _matches(kind: str, wanted: str) -> bool:
    return fnmatch.fnmatchcase(kind.lower(), wanted.lower()) or wanted.lower() in kind.lower()


def refuse(name: str, needs: Needs, nodes: Sequence[Node]) -> str | None:
    """Return why no node can ever run this; nodes that are down count, because they may come back."""
    parse_options(needs.options)
    if not nodes:
        return None
    fitting = [node for node in nodes if not needs.gpu_type or has_type(node, needs.gpu_type)]
    if not fitting:
        kinds = ", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type})) or "none that it names"
        return f'{name} has no GPU of type "{needs.gpu_type}"; its types are: {kinds}'
    if needs.gpus > (most := max(node.gpus for node in fitting)):
        return f"it needs {needs.gpus} GPUs of one node; the largest of {name} has {most}"
    if needs.cpus > (cores := max(node.cpus for node in fitting)):
        return f"it needs {needs.cpus} cores of one node; the largest of {name} has {cores}"
    if needs.mem > (mem := max(node.mem for node in fitting)):
        wanted, largest = units.format_size(needs.mem), units.format_size(mem)
        return f"it needs {wanted} of one node; the largest of {name} has {largest}"
    # Each is there, but on different nodes.
    if not any(node.gpus >= needs.gpus and node.cpus >= needs.cpus and node.mem >= needs.mem for node in fitting):
        return f"no single node of {name} has all of its GPUs, cores and memory"
    return None


def body(start: Start, wanted: Resources) -> dict[str, object]:
    """Return the request that submits a start as a Ray job."""
    document: dict[str, object] = {
        "submission_id": start.key,
        "entrypoint": entrypoint(start.argv, start.engine_output),
        "entrypoint_num_gpus": wanted.gpus,
        "entrypoint_num_cpus": wanted.cpus,
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}},
        "metadata": {"job_name": start.name, "dibs": start.key},
    }
    if wanted.memory:
        document["entrypoint_memory"] = wanted.memory
    if wanted.custom:
        document["entrypoint_resources"] = wanted.custom
    if wanted.labels:
        document["entrypoint_label_selector"] = wanted.labels
    return document


def entrypoint(argv: Sequence[str], output: str) -> str:
    """Return the line that Ray gives to a shell; the process takes the place of that shell."""
    return f"exec {shlex.join(argv)} >>{shlex.quote(output)} 2>&1"


def script(address: str, start: Start, wanted: Resources) -> str:
    """Return the same request for Ray's own command line."""
    words = ["ray", "job", "submit", "--no-wait", f"--address={address}", f"--submission-id={start.key}"]
    words += [f"--entrypoint-num-gpus={wanted.gpus}", f"--entrypoint-num-cpus={wanted.cpus:g}"]
    if wanted.memory:
        words.append(f"--entrypoint-memory={wanted.memory}")
    if wanted.custom:
        words.append(f"--entrypoint-resources={json.dumps(wanted.custom)}")
    if wanted.labels:
        words.append(f"--entrypoint-label-selector={json.dumps(wanted.labels)}")
    return f"#!/bin/sh\n{shlex.join([*words, '--', *start.argv])}\n"

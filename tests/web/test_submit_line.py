"""The command line shown in the submit dialog does the same as the dialog."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import Bench

DRAFTS = Path(__file__).parents[2] / "src/dibs/web/core/job-drafts.js"
TOLD = [
    {"command": "python train.py --lr 0.1 | tee 'my log'"},
    {"command": "true", "gpus": "2", "name": "a name", "cwd": "/tmp", "env": "A=1\nB=it's x=y", "priority": "-10"},
    {"command": "echo \"$HOME\" '\\'' \\", "gpus": "0", "time": "1d12h"},
    {"command": "true --flag; false", "gpus": "1", "priority": "100"},
    {"command": "true", "vram": "2G", "retries": "3", "tags": "a, b", "gpuIds": "1,2"},
]
KEYS = ("command", "gpus", "name", "cwd", "env", "priority", "time_limit_s")


def test_the_shown_command_line_makes_the_same_request(bench: Bench):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs nodejs")
    program = f"""
        import * as drafts from {json.dumps(str(DRAFTS))};
        const all = {json.dumps(TOLD)}.map((told) => ({{ ...drafts.EMPTY, cwd: "/", ...told }}));
        console.log(JSON.stringify(all.map((told) => [drafts.line(told), {{...drafts.defaults(told),
            name: told.name, command: told.command}}])));
    """
    made = subprocess.run([node, "--input-type=module", "-e", program], capture_output=True, text=True, check=True)
    bench.start()
    for line, body in json.loads(made.stdout):
        typed = bench.cli(*shlex.split(line)[1:2], "--dry-run", "--json", *shlex.split(line)[2:])
        assert typed.returncode == 0, (line, typed.stderr)
        by_line = json.loads(typed.stdout)["jobs"][0]
        by_dialog = bench.client.post("/v1/jobs?dry_run=1", body)["jobs"][0]
        assert {key: by_line[key] for key in KEYS} == {key: by_dialog[key] for key in KEYS}, line

"""`scripts/picture-top`: open `dibs top` on a queue of its own, press keys, and write what it shows as an SVG."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from dibs.cli.top import feed, lines
from dibs.cli.top.application import TopApp
from dibs.cli.top.desk import Desk
from dibs.client import connection

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "top.svg"
SIZE = (120, 36)
#: Seconds until the picture must be complete.
PATIENCE_S = 60
TRAIN = 'for step in $(seq 400); do echo "step $step  loss 0.$((900 - step))"; sleep 0.05; done; sleep 600'
JOBS = (
    ("-n", "vit-base", "-t", "8h", TRAIN),
    ("-n", "vit-large", "-g", "2", "-t", "12h", TRAIN),
    ("-n", "evaluate", "-t", "30m", TRAIN),
    ("-n", "resnet", "-g", "2", "-t", "4h", TRAIN),
    ("-n", "ablation", "--priority", "-10", "-t", "1h", TRAIN),
    ("-n", "report", "--after", "1", "true"),
)  # fmt: skip


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(DIBS_HOME=f"{folder}/home", DIBS_LEASE_DIR=folder, DIBS_DEVICES="fake:4", PWD="/tmp")
        dibs = [sys.executable, "-m", "dibs"]
        try:
            subprocess.run([*dibs, "add", "-q", "-n", "prepare", "-g", "0", "false"], check=True, cwd="/tmp")
            for words in JOBS:
                subprocess.run([*dibs, "add", "-q", *words], check=True, cwd="/tmp")
            PICTURE.write_text(asyncio.run(take()))
        finally:
            subprocess.run([*dibs, "cancel", "unfinished", "--grace", "0s", "-q"], check=False)
            subprocess.run([*dibs, "wait", "--timeout", "30s"], check=False)
            subprocess.run([*dibs, "daemon", "stop"], check=False)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


async def take() -> str:
    """Return the screen with the log of the chosen job open, without fonts of other hosts."""
    client = connection.connect(os.environ)
    app = TopApp(Desk(client, feed.first(client)), lines.UNICODE)
    async with app.run_test(size=SIZE) as pilot, asyncio.timeout(PATIENCE_S):
        await pilot.press("j", "l")
        await _until(pilot, app)
        picture = app.export_screenshot(title="dibs top")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)


async def _until(pilot: Pilot[None], app: TopApp) -> None:
    """Wait until everything has been heard and the log has some lines."""
    while app.shown.timeline is None or not app.shown.host or app.log_pane.line_count < 100:
        await pilot.pause(0.05)


if __name__ == "__main__":
    main()

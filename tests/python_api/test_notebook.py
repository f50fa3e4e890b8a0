"""A notebook is executed in a real kernel, and shows what is stored in it.

After a change that it should show: `.venv/bin/python tests/python_api/test_notebook.py` stores its outputs anew.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from bench import Bench

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
#: What differs from run to run.
CHANGING = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)", "TIME"), (r"\d:\d\d\b", "0:00"), (r"<Job \d+", "<Job N"),
    (r"(<t[dh][^>]*>)\d+(</t[dh]>)", r"\1N\2"), (r"(?m)^( *)\d+  ", r"\1N  "),
)  # fmt: skip


def execute(bench: Bench) -> Any:
    """Execute the notebook with a queue of its own; return it with its outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environ = bench.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "IPYTHONDIR": str(bench.folder / "ipython")}
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(bench.folder)}}
    )
    client.execute(env=environ)
    for cell in notebook.cells:
        cell.pop("execution_count", None)
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
    return notebook


def shown(notebook: Any) -> list[tuple[str, list[str]]]:
    """Return each cell with what it shows, without what differs from run to run."""
    found = []
    for cell in notebook.cells:
        outputs = [_text(output) for output in cell.get("outputs", ())]
        found.append((cell.source, outputs))
    return found


def _text(output: Any) -> str:
    data = output.get("data", {})
    text = data.get("text/html") or data.get("text/plain") or output.get("text") or output.get("ename")
    for pattern, word in CHANGING:
        text = re.sub(pattern, word, text)
    return str(text)


# zmq of the kernel's client warns about the event loop of the tests.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_notebook_shows_what_is_stored_in_it(bench: Bench) -> None:
    assert shown(execute(bench)) == shown(nbformat.read(NOTEBOOK, as_version=4))


def main() -> None:
    """Store what the notebook shows now."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        own = Bench(Path(folder))
        try:
            nbformat.write(execute(own), NOTEBOOK)
        finally:
            own.close()


if __name__ == "__main__":
    main()

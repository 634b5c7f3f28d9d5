"""Executes a notebook, or the cells of it that need neither Ray nor Spark."""

from __future__ import annotations

import tempfile
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.examples.running import EXAMPLES, environment

NOTEBOOKS = ("quickstart.ipynb", "spark_streams.ipynb")


def read_notebook(name: str = NOTEBOOKS[0]) -> Any:
    """A notebook as it is stored."""
    return nbformat.read(EXAMPLES / name, as_version=4)


def run_notebook(*tags: str, name: str = NOTEBOOKS[0], timeout_s: int = 200, **env: str) -> list[str]:
    """What each code cell prints, in order. A cell with tags runs only if ``tags`` has all of them."""
    notebook = read_notebook(name)
    notebook.cells = [cell for cell in notebook.cells if set(cell.metadata.get("tags", ())) <= set(tags)]
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        # Unix sockets: over TCP anybody on the machine could read along.
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/socket")
        client = NotebookClient(notebook, km=manager, timeout=timeout_s, resources={"metadata": {"path": str(EXAMPLES)}})
        client.execute(env=environment(**env), cleanup_kc=True)
    return [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]

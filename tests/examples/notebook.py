"""Executes a notebook, or the cells of it that need neither Ray nor Spark.

``python -m tests.examples.notebook`` runs all notebooks, with Ray and Spark, and stores what their cells print; names as arguments: those.
"""

from __future__ import annotations

import copy
import re
import sys
import tempfile
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.examples.running import EXAMPLES, environment, refuse_chatter

NOTEBOOKS = ("quickstart.ipynb", "windows_and_late_data.ipynb", "live_graph.ipynb", "live_collection.ipynb", "spark_streams.ipynb")


def read_notebook(name: str = NOTEBOOKS[0]) -> Any:
    """A notebook as it is stored."""
    return nbformat.read(EXAMPLES / name, as_version=4)


def stored_outputs(*tags: str, name: str = NOTEBOOKS[0]) -> list[str]:
    """What :func:`run_notebook` gives, as it is stored."""
    return _printed(_with_cells(tags, name))


def without_figures(printed: list[str]) -> list[str]:
    """The same with # for each figure: for outputs that name processes and count snapshots."""
    return [re.sub(r"\d[\d,.]*", "#", text) for text in printed]


def run_notebook(*tags: str, name: str = NOTEBOOKS[0], timeout_s: int = 200, **env: str) -> list[str]:
    """What each code cell prints, in order. A cell with tags runs only if ``tags`` has all of them. Fails if a cell prints chatter."""
    notebook = _executed(_with_cells(tags, name), timeout_s, **env)
    _refuse_chatter(notebook)
    return _printed(notebook)


def store_outputs(name: str) -> None:
    """Run a notebook and store what its cells print on stdout; nothing of this machine, no times, no messages."""
    notebook = _executed(read_notebook(name), timeout_s=300)
    whole = copy.deepcopy(notebook)
    notebook.metadata = read_notebook(name).metadata  # not with the version of this Python
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.metadata.pop("execution", None)
        cell.execution_count = number
        text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
    nbformat.write(notebook, EXAMPLES / name)
    _refuse_chatter(whole)


def _with_cells(tags: tuple[str, ...], name: str) -> Any:
    notebook = read_notebook(name)
    notebook.cells = [cell for cell in notebook.cells if set(cell.metadata.get("tags", ())) <= set(tags)]
    return notebook


def _executed(notebook: Any, timeout_s: int, **env: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        # Unix sockets: over TCP anybody on the machine could read along.
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/socket")
        client = NotebookClient(notebook, km=manager, timeout=timeout_s, resources={"metadata": {"path": str(EXAMPLES)}})
        client.execute(env=environment(**env), cleanup_kc=True)
    return notebook


def _refuse_chatter(notebook: Any) -> None:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    refuse_chatter("".join(output.get("text", "") for output in outputs))


def _printed(notebook: Any) -> list[str]:
    return [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


if __name__ == "__main__":
    for given in sys.argv[1:] or NOTEBOOKS:
        store_outputs(given)

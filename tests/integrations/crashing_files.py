"""A file system that stops working at a chosen operation, before or after that operation takes effect."""

from __future__ import annotations

from typing import Any

from pyarrow import fs

from rayad.snapshots.create import create_if_absent


class Crash(Exception):
    """Stands for the death of the process."""


class CrashingFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """The local file system; after ``left`` more changes, each operation raises Crash. ``changes`` counts the changes."""

    def __init__(self) -> None:
        self.local = fs.LocalFileSystem()
        self.left: int | None = None
        self.changes = 0

    def _change(self) -> None:
        self._live()
        self.changes += 1
        if self.left is not None:
            self.left -= 1

    def _live(self) -> None:
        if self.left is not None and self.left <= 0:
            raise Crash

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "crashing"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        self._live()
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        self._live()
        return self.local.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._change()
        self.local.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._change()
        self.local.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._change()
        self.local.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._change()
        self.local.move(src, dest)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """As on the local file system, with a crash before, between writing the content and giving it the name, or after."""
        self._change()
        self._change()
        return create_if_absent(self.local, path, data)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        self._live()
        return self.local.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        self._live()
        return self.local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._change()
        return self.local.open_output_stream(path, compression=None)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

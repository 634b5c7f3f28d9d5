"""Lines of text files, and JSON values one a line.

A big file is cut into ranges of bytes so that several replicas can read it. A line belongs to the range in which it starts; the reader
of a range reads past its end to finish its last line. The offset is the byte at which the next line starts.
"""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from rayad.dataflow.source import Source, SourceBatch, SourcePart
from rayad.integrations.blocks import check_batch_rows
from rayad.integrations.paths import Paths, files_fingerprint, find_files
from rayad.progress import ConfigError, DataflowError, arguments

READ_BYTES = 1 << 20
DEFAULT_SPLIT_BYTES = 32 << 20
MAX_LINE_BYTES = 64 << 20
TEXT = pa.schema([("text", pa.string())])
"""The columns of lines in columns."""
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


class TextRange(NamedTuple):
    """A part: the lines of ``path`` that start at bytes ``start`` to ``stop`` (exclusive; None: to its end, of the decompressed text)."""

    path: str
    start: int
    stop: int | None


class TextPart(SourcePart):
    """A range of a text file being read."""

    def __init__(self, source: TextSource, part: TextRange, resume: int | None) -> None:
        self._source = source
        self._part = part
        self._lines: list[bytes] = []
        self._next_line = 0
        self._position = part.start if resume is None else resume  # where the next line to give starts
        self._at_boundary = self._position == 0 or self._position != part.start  # a range may start inside a line; an offset does not
        self._tail = b""
        self._tail_start = self._position  # where the text that is not yet cut into lines starts
        self._file: Any = None
        self._ended = False
        self._unended = 0  # 1 when the last line cut has no line end

    def offset(self) -> int:
        """The byte at which the next line starts."""
        return self._position

    def share_read(self) -> float | None:
        """By bytes; None of a compressed file, whose size in text is not known."""
        start, stop = self._part.start, self._part.stop
        if self._file is None or self._part.path.endswith(COMPRESSED):
            return None
        total = (self._file.size() if stop is None else stop) - start
        return (self._position - start) / total if total > 0 else None

    def _fail(self, error: Exception) -> DataflowError:
        return DataflowError(
            f"{self._source.where}: reading {self._part.path!r} at byte {self._position}: {error}; check the file and its encoding"
        )

    def _read(self) -> bytes:
        try:
            if self._file is None:
                self._open()
            data: bytes = self._file.read(READ_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise self._fail(error) from error
        return data

    def _open(self) -> None:
        home, path = self._source.filesystem, self._part.path
        if path.endswith(COMPRESSED):
            self._file = home.open_input_stream(path, compression="detect")
            for skip in _pieces(self._tail_start):
                if len(self._file.read(skip)) < skip:
                    raise OSError(f"it ends before byte {self._tail_start}, where reading should resume: it changed since the snapshot")
            return
        self._file = home.open_input_file(path)
        if self._tail_start > self._file.size():
            raise OSError(f"it has {self._file.size()} bytes, reading should resume at {self._tail_start}: it changed since the snapshot")
        self._file.seek(self._tail_start if self._at_boundary else self._tail_start - 1)

    def _find_first_line(self) -> None:
        """From inside a line, or from its start, move to the first line that starts in this range."""
        self._at_boundary = False
        seen, skipped = b"", -1  # reading starts one byte early: if that byte ends a line, ours starts here
        while True:
            data = self._read()
            cut = data.find(b"\n")
            if cut >= 0:
                seen, skipped = data[cut + 1 :], skipped + cut + 1
                break
            skipped += len(data)
            if not data:
                break
        self._at_boundary = True
        self._position = self._tail_start = self._tail_start + skipped
        self._tail = seen

    def _fill(self) -> None:
        """Cut more text into lines."""
        if not self._at_boundary:
            self._find_first_line()
            data = b""
        else:
            data = b"" if b"\n" in self._tail else self._read()
            if not data and b"\n" not in self._tail:
                self._ended = True
        pieces = [self._tail]
        size = len(self._tail)
        while data and b"\n" not in data and not self._ended:  # one long line: join once, not at each read
            pieces.append(data)
            size += len(data)
            if size > MAX_LINE_BYTES:
                raise self._fail(ValueError(f"a line is longer than {MAX_LINE_BYTES} bytes"))
            data = self._read()
            self._ended = not data
        pieces.append(data)
        lines = b"".join(pieces).split(b"\n")
        rest = lines.pop()
        if self._ended and rest:
            lines.append(rest)
            rest, self._unended = b"", 1
        stop = self._part.stop
        if stop is not None:
            start = self._tail_start
            for index, line in enumerate(lines):
                if start >= stop:
                    del lines[index:]
                    self._unended = 0
                    break
                start += len(line) + 1
            self._ended = self._ended or start >= stop
        self._tail_start += sum(map(len, lines)) + len(lines)
        self._tail = rest
        self._lines = self._lines[self._next_line :] + lines
        self._next_line = 0

    def next_batch(self) -> SourceBatch | None:
        """Exactly ``batch_rows`` lines, except in the last batch of the range."""
        wanted = self._source.batch_rows
        if self._part.stop is not None and not self._lines and self._position >= self._part.stop:
            self._ended = True
        while len(self._lines) - self._next_line < wanted and not self._ended:
            self._fill()
        raw = self._lines[self._next_line : self._next_line + wanted]
        if not raw:
            return None
        batch = self._convert(raw)
        self._next_line += len(raw)
        self._position += sum(map(len, raw)) + len(raw)
        if self._next_line == len(self._lines):
            self._position -= self._unended
            self._unended = 0
        return SourceBatch(0, batch)

    def _convert(self, raw: list[bytes]) -> Any:
        """Records from lines: all at once where that gives the same as one by one."""
        source = self._source
        block = b"\n".join(raw)
        if b"\r" not in block:
            if source.columnar and source.encoding == "utf-8" and len(block) < 1 << 31:
                column = _cut_lines(block)
                if column is not None and len(column) == len(raw):
                    return source.of_column(column, self._position)
            try:
                texts = block.decode(source.encoding).split("\n")
            except UnicodeDecodeError:
                texts = []
            if len(texts) == len(raw):  # else the encoding has line ends of its own
                return source.shape(texts, raw, self._position, self._part.path)
        return source.shape(self._decode_each(raw), raw, self._position, self._part.path)

    def _decode_each(self, raw: list[bytes]) -> list[str]:
        encoding = self._source.encoding
        at = self._position
        texts: list[str] = []
        for line in raw:
            try:
                texts.append((line[:-1] if line.endswith(b"\r") else line).decode(encoding))
            except UnicodeDecodeError as error:
                raise DataflowError(
                    f"{self._source.where}: the line at byte {at} of {self._part.path!r} is not {encoding}: {error}; give encoding="
                ) from error
            at += len(line) + 1
        return texts

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file = self._file, None
        self._ended, self._lines, self._next_line = True, [], 0
        if file is not None:
            file.close()


def _cut_lines(block: bytes) -> pa.Array | None:
    """The lines of a block of UTF-8 as an Arrow column; None when it is not UTF-8. One copy, no Python object per line."""
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(block)))
    try:
        whole = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(block)]).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    return pc.split_pattern(whole, "\n").flatten()


def _pieces(total: int) -> list[int]:
    return [READ_BYTES] * (total // READ_BYTES) + ([total % READ_BYTES] if total % READ_BYTES else [])


class TextSource(Source):
    r"""Reads the lines of text files, without their line ends (``\n`` or ``\r\n``), all in epoch 0.

    ``paths``: see :mod:`rayad.integrations.paths`. Records are strings; with ``columnar`` batches have one column ``text``. Files larger
    than ``split_bytes`` are split into ranges that are read side by side, except compressed ones (``.gz .bz2 .zst .lz4 .br``).
    """

    blocks = False
    where = "read_text"
    one_epoch = True

    def __init__(
        self,
        paths: Paths,
        *,
        columnar: bool = False,
        encoding: str = "utf-8",
        batch_rows: int = 8_192,
        split_bytes: int = DEFAULT_SPLIT_BYTES,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        self.batch_rows = check_batch_rows(batch_rows, self.where)
        split_bytes = arguments.whole(split_bytes, f"{self.where}: split_bytes", least=1, error=ConfigError)
        columnar = arguments.flag(columnar, f"{self.where}: columnar", error=ConfigError)
        try:
            name = codecs.lookup(arguments.text(encoding, f"{self.where}: encoding", error=ConfigError)).name
        except (LookupError, ValueError) as error:
            raise ConfigError(f"{self.where}: encoding={encoding!r} is not known to Python; try 'utf-8' or 'latin-1'") from error
        if name.startswith(("utf-16", "utf-32", "utf-7")):
            raise ConfigError(
                f"{self.where}: encoding={encoding!r} has no single-byte line ends, so files cannot be cut; convert them to utf-8"
            )
        self.encoding = name
        self.columnar = columnar
        self.schema = TEXT if columnar else None
        self.split_bytes = split_bytes
        self.filesystem, self.files = find_files(paths, filesystem, self.where)

    def shape(self, texts: list[str], raw: list[bytes], position: int, path: str) -> Any:
        """Make a batch from lines."""
        return self.of_column(pa.array(texts, pa.string()), position) if self.columnar else texts

    def of_column(self, lines: pa.Array, position: int) -> pa.RecordBatch:
        """Make a columnar batch from lines, the first of which begins at this byte of its file."""
        return pa.record_batch({"text": lines})

    def list_parts(self) -> Sequence[TextRange]:
        """Split the files, in order, into ranges of about ``split_bytes`` bytes."""
        parts: list[TextRange] = []
        for path, size, _ in self.files:
            if path.endswith(COMPRESSED) or size <= self.split_bytes:
                parts.append(TextRange(path, 0, None))
                continue
            count = -(-size // self.split_bytes)
            cuts = [size * i // count for i in range(count)]
            parts += [TextRange(path, a, b) for a, b in zip(cuts, [*cuts[1:], None], strict=True)]
        return parts

    def part_sizes(self, parts: Sequence[TextRange]) -> Sequence[float]:
        """Bytes of the files, as they are stored."""
        sizes = {path: size for path, size, _ in self.files}
        return [float((sizes.get(path, start) if stop is None else stop) - start) for path, start, stop in parts]

    def fingerprint(self, parts: Sequence[TextRange]) -> dict[str, Any]:
        """The files, and how they are cut."""
        return {**files_fingerprint(self.files), "split_bytes": self.split_bytes, "parts": len(parts)}

    def build_part(self, part: TextRange, resume: int | None) -> SourcePart:
        """Open a range; ``resume`` is the byte at which a line starts."""
        return TextPart(self, part, resume)


class JsonRowsSource(TextSource):
    """Reads each non-empty line of JSON files as a Python value, mostly a dict; lines may differ in their fields. Files are split as by
    :class:`TextSource`."""

    where = "read_json"

    def shape(self, texts: list[str], raw: list[bytes], position: int, path: str) -> Any:
        """Parse each line."""
        values: list[Any] = []
        at = position
        for text, line in zip(texts, raw, strict=True):
            if text and not text.isspace():
                try:
                    values.append(json.loads(text))
                except ValueError as error:
                    raise DataflowError(
                        f"{self.where}: the line at byte {at} of {path!r} is not JSON: {error}: {text[:80]!r}; give one JSON value a line"
                    ) from error
                except RecursionError as error:
                    raise DataflowError(
                        f"{self.where}: the line at byte {at} of {path!r} nests values deeper than Python goes: {error}: {text[:80]!r}; "
                        "write the inner ones as text in a string"
                    ) from error
            at += len(line) + 1
        return values


__all__ = ["JsonRowsSource", "TextPart", "TextRange", "TextSource"]

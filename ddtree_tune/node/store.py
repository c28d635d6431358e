"""A sweep's results folder: written whole or not at all, read back as records.

One Parquet file per trial and table, written beside and renamed, so that a file is complete as soon
as it has its name. A trial counts once its row in ``trials`` is there, which is written last. There
is no database and no lock: one process writes, and whoever reads lists the files.

On a local disk a file is synced before it gets its name, and its folder after: without that a machine
that loses power keeps names of empty files, of cells that cost minutes of a node. It takes
milliseconds. Object stores are durable once a file is closed.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ddtree_tune.core.errors import StoreError
from ddtree_tune.core.schema import SCHEMA_VERSION, TABLES, VERSION_KEY, records, schema, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddtree_tune.core.record import Fingerprint, TrialRecord

_MARK = "fingerprint.json"
"""Written before any record: a folder without it is not the one that the sweep began."""


class Store:
    """The results folder of one sweep; implements ``ports.Sink``."""

    def __init__(self, root: str) -> None:
        """Use a folder; it is made when something is written.

        Args:
            root: an absolute path, or a URI that pyarrow knows (``s3://``, ``gs://``,
                ``fsspec+…://``).
        """
        self.root = root
        with _attributed(f"open {root}"):
            self._fs, self._path = fs.FileSystem.from_uri(root)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    def write(self, record: TrialRecord) -> None:
        """Keep all of a record, durably; a later write of the same trial replaces it.

        Raises:
            StoreError: it cannot be written, or the folder is gone.
        """
        if not self._is_file(_MARK):  # writing would make it anew, perhaps below a mount point that lost its disk
            raise StoreError(
                f"{self.root} must still hold its sweep's {_MARK}, but got none: it was moved, deleted or unmounted"
            )
        for name, table in reversed(tables(record).items()):  # trials, which makes the rest count, is the last
            with self._written(f"{name}/{record.trial_id}.parquet") as file:
                pq.write_table(table, file, compression="zstd")
        if record.log:
            self.write_text(f"logs/{record.trial_id}/server.log", record.log)

    def read_records(self, *, raw: bool = False) -> tuple[TrialRecord, ...]:
        """Every trial that left a row, in the order of asking.

        Args:
            raw: whether to read every request as well; a conclusion does not need them.

        Raises:
            StoreError: a file is damaged or of another schema version.
        """
        names = [name for name in TABLES if raw or name != "requests"]
        return records({name: self.read_table(name) for name in names})

    def read_record(self, trial_id: str) -> TrialRecord | None:
        """All that one trial left, its requests too; None if it left no row.

        Raises:
            StoreError: a file is damaged or of another schema version.
        """
        if not self._is_file(f"trials/{trial_id}.parquet"):
            return None
        return records({name: self._read(name, trial_id) for name in TABLES})[0]

    def read_table(self, name: str) -> pa.Table:
        """One table over all trials, in the order of asking.

        Raises:
            StoreError: a file is damaged or of another schema version.
        """
        trials = self._trial_ids("trials")
        if name != "trials":
            trials = [trial for trial in trials if self._is_file(f"{name}/{trial}.parquet")]
        return pa.concat_tables([self._read(name, trial) for trial in trials] or [schema(name).empty_table()])

    def write_spec(self, text: str) -> None:
        """Keep the spec as it was given."""
        self.write_text("sweep.yaml", text)

    def read_spec(self) -> str:
        """The spec as it was given.

        Raises:
            StoreError: the folder has none.
        """
        return self.read_text("sweep.yaml")

    def write_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Keep where the sweep was driven from."""
        self.write_text(_MARK, json.dumps(asdict(fingerprint), indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Keep a text file below the folder.

        Raises:
            StoreError: it cannot be written.
        """
        with self._written(name) as file:
            file.write(text.encode("utf-8", errors="replace"))

    def write_folder(self, name: str, local: Path) -> None:
        """Keep the files of a local folder, hidden ones left out.

        Raises:
            StoreError: one cannot be written.
        """
        for file in sorted(one for one in local.rglob("*") if one.is_file() and not one.name.startswith(".")):
            with self._written(f"{name}/{file.relative_to(local).as_posix()}") as kept:
                kept.write(file.read_bytes())

    def read_text(self, name: str) -> str:
        """A text file below the folder.

        Raises:
            StoreError: it is not there or cannot be read.
        """
        with _attributed(f"read {self.root}/{name}"), self._fs.open_input_stream(f"{self._path}/{name}") as file:
            return str(file.read().decode("utf-8"))

    @contextmanager
    def _written(self, name: str) -> Iterator[IO[bytes] | pa.NativeFile]:
        """Open a file under a name that nobody reads, and rename it once it is whole."""
        folder, _, last = f"{self._path}/{name}".rpartition("/")
        beside = f"{folder}/.{last}.part"
        with _attributed(f"write {self.root}/{name}"):
            self._fs.create_dir(folder, recursive=True)
            try:
                with self._opened(beside) as file:
                    yield file
                self._fs.move(beside, f"{folder}/{last}")
            except BaseException:
                with suppress(OSError):  # the half would fill a full disk further
                    self._fs.delete_file(beside)
                raise
            if self._is_local:
                _sync(folder)

    @contextmanager
    def _opened(self, path: str) -> Iterator[IO[bytes] | pa.NativeFile]:
        """Open a file to write, which is durable when it is closed."""
        if self._is_local:
            with open(path, "wb") as file:  # noqa: PTH123 - a path of pyarrow's
                yield file
                file.flush()
                os.fsync(file.fileno())
        else:
            with self._fs.open_output_stream(path) as stream:
                yield stream

    def _trial_ids(self, table: str) -> list[str]:
        """Trials with a whole file of a table, in the order of asking."""
        with _attributed(f"list {self.root}/{table}"):
            found = self._fs.get_file_info(fs.FileSelector(f"{self._path}/{table}", allow_not_found=True))
        names = [info.base_name for info in found if info.type is fs.FileType.File]
        return sorted(name.removesuffix(".parquet") for name in names if _is_whole(name))

    def _is_file(self, name: str) -> bool:
        with _attributed(f"look for {self.root}/{name}"):
            info = self._fs.get_file_info(f"{self._path}/{name}")
        return bool(info.type is fs.FileType.File)

    def _read(self, table: str, trial_id: str) -> pa.Table:
        name = f"{table}/{trial_id}.parquet"
        with _attributed(f"read {self.root}/{name}; delete the file and the trial runs again"):
            found = pq.read_table(f"{self._path}/{name}", filesystem=self._fs, partitioning=None)
        version = (found.schema.metadata or {}).get(VERSION_KEY, b"none").decode()
        if version != str(SCHEMA_VERSION):
            raise StoreError(
                f"{self.root}/{name} must have schema version {SCHEMA_VERSION}, but got {version}; "
                "read it with the version of ddtree_tune that wrote it"
            )
        return found


def _sync(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_whole(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".")


@contextmanager
def _attributed(doing: str) -> Iterator[None]:
    """Make whatever the file system says one StoreError."""
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise StoreError(f"cannot {doing}: {error}") from error

"""Writing many files that belong together: all of them or none, equal contents stored once."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from chakra.arrays import U8
from chakra.errors import UsageError
from chakra.io import leftovers
from chakra.io.files import expect_prefix, expect_unread, made_folder, reason


class StagedFiles:
    """Files written into a hidden folder beside their target and moved there together.

    Parameters
    ----------
    prefix
        Targets are ``prefix + suffix``. Missing folders are made.
    link
        Store equal contents once, as hard links, where the file system can.

    Raises
    ------
    UsageError
        If the folder cannot be written.
    """

    def __init__(self, prefix: str | os.PathLike[str], *, link: bool = True) -> None:
        self.prefix = expect_prefix(prefix)
        self._link = link
        self._suffixes: list[str] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(made_folder(self.prefix.parent, prefix))
            try:
                leftovers.remove(self.prefix.parent)
                self._held, self._folder = leftovers.new_folder(
                    self.prefix.parent, leftovers.prefix(self.prefix.name)
                )
            except (OSError, ValueError) as error:
                raise UsageError(f"{prefix}: cannot be written: {reason(error)}") from error
            self._parents = stack.pop_all()

    def __enter__(self) -> "StagedFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leftovers.drop(self._held, self._folder)
        self._parents.close()
        if isinstance(error, OSError):
            raise UsageError(f"{self.prefix}: cannot be written: {reason(error)}") from error

    def target(self, suffix: str) -> Path:
        """Where the file with this suffix will be."""
        return self.prefix.with_name(self.prefix.name + suffix)

    def add(self, suffixes: Iterable[str], content: bytes | U8) -> None:
        """Stage one content under one or more suffixes."""
        first: Path | None = None
        for suffix in suffixes:
            if os.path.isdir(self.target(suffix)):
                raise UsageError(f"{self.target(suffix)}: cannot be written: it is a folder")
            expect_unread(self.target(suffix))
            path = self._folder / str(len(self._suffixes))
            if first is None or not self._linked(first, path):
                path.write_bytes(content if isinstance(content, bytes) else content.data)
                first = path
            self._suffixes.append(suffix)

    def _linked(self, first: Path, path: Path) -> bool:
        if not self._link:
            return False
        try:
            os.link(first, path)
        except OSError:  # the file system has no hard links, or no more of them for this file
            return False
        return True

    def commit(self) -> list[Path]:
        """Move all staged files to their targets; returns these."""
        moved = []
        for index, suffix in enumerate(self._suffixes):
            target = self.target(suffix)
            os.replace(self._folder / str(index), target)
            moved.append(target)
        return moved

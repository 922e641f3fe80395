"""A commit as a tree, read by git without touching any checkout."""

from __future__ import annotations

import posixpath
import subprocess
from functools import cached_property
from pathlib import Path

from r3bench.errors import GuardError
from r3bench.worktree import Folder, Tree

_TIMEOUT_S = 60.0
_LINK, _MOST_LINKS = "120000", 8


class Commit:
    """A commit of the repository that holds ``top``; paths are relative to ``top``, as in the working tree.

    ``name`` is anything that git takes for a commit. GuardError in one sentence where git knows no such commit, where
    the clone is shallow, or where there is no git or no repository.
    """

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.name = top, name
        if name.startswith("-"):
            raise GuardError(f"{name!r} is no name of a commit")
        if _git(top, "rev-parse", "--git-dir").returncode:
            raise GuardError(f"{top} is in no git repository that git can read: give a folder to compare with")
        found = _git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found.returncode:
            raise GuardError(_unknown(top, name))
        self.sha = found.stdout.decode().strip()

    def read(self, path: str) -> bytes | None:
        for _ in range(_MOST_LINKS):
            mode, sha = self._files.get(posixpath.normpath(path), ("", ""))
            data = _checked(self.top, "cat-file", "blob", sha) if sha else None
            if data is None or mode != _LINK:
                return data
            path = posixpath.join(posixpath.dirname(path), data.decode(errors="replace"))
        return None

    def stores(self, below: str) -> tuple[str, ...]:
        prefix = "" if posixpath.normpath(below) == "." else posixpath.normpath(below) + "/"
        found = {store for path in self._files if path.startswith(prefix) and (store := _store(path))}
        return tuple(sorted(found))

    @cached_property
    def _files(self) -> dict[str, tuple[str, str]]:
        """Mode and object of every file below ``top``, by path."""
        listed = _checked(self.top, "ls-tree", "-r", "-z", self.sha).decode("utf-8", "surrogateescape")
        entries = ((*head.split(), path) for head, _, path in (e.partition("\t") for e in listed.split("\0") if e))
        return {path: (mode, sha) for mode, kind, sha, path in entries if kind == "blob"}


def open_tree(given: str, top: Path) -> Tree:
    """The tree that ``given`` names: a folder where there is one, otherwise a commit of ``top``'s repository."""
    folder = Path(given).expanduser()
    return Folder(folder.resolve(), given) if folder.is_dir() else Commit(top, given)


def current(top: Path) -> str | None:
    """The SHA of the commit that is checked out at ``top``; None where there is none, or no git."""
    try:
        return Commit(top, "HEAD").sha
    except GuardError:
        return None


def _store(path: str) -> str:
    """The capture that a file belongs to; empty where it belongs to none."""
    if path.endswith(".zarr.zip"):
        return path
    return path.removesuffix("/zarr.json") if path.endswith(".zarr/zarr.json") else ""


def _git(top: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(top), *arguments], capture_output=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise GuardError("git is not on PATH: install it, or give a folder to compare with") from None
    except subprocess.TimeoutExpired:
        raise GuardError(f"git {arguments[0]} did not end within {_TIMEOUT_S:g} s in {top}") from None


def _checked(top: Path, *arguments: str) -> bytes:
    done = _git(top, *arguments)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise GuardError(f"git {arguments[0]} failed in {top}: {said[0]}")
    return done.stdout


def _unknown(top: Path, name: str) -> str:
    if _git(top, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        return (
            f"git knows no commit {name!r} in {top}, which is a shallow clone: fetch it with "
            f"'git fetch --depth=1 origin {name}' (actions/checkout: fetch-depth: 0)"
        )
    return f"there is no folder {name!r}, and git knows no commit of this name in {top}"

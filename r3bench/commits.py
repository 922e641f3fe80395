"""A commit as a tree, read by git without touching any checkout."""

from __future__ import annotations

import os
import posixpath
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from r3bench.errors import TreeError
from r3bench.worktree import Folder, Tree

_TIMEOUT_S = 60.0
_LINK, _MOST_LINKS = "120000", 8
_MOST_MOVES = 8


class Commit:
    """A commit of the repository that holds ``top``; paths are relative to ``top``, as in the working tree.

    ``name`` is anything that git takes for a commit. TreeError in one sentence where git knows no such commit, where
    the clone is shallow, or where there is no git or no repository.
    """

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.name = top, name
        self._opened: dict[str, Commit] = {}  # submodules
        if name.startswith("-"):
            raise TreeError(f"{name!r} is no name of a commit")
        if git(top, "rev-parse", "--git-dir").returncode:
            raise TreeError(f"{top} is in no git repository that git can read: give a folder to compare with")
        found = git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found.returncode:
            raise TreeError(_unknown(top, name))
        self.sha = found.stdout.decode().strip()

    def read(self, path: str) -> bytes | None:
        for _ in range(_MOST_LINKS):
            path = posixpath.normpath(path)
            if inner := next((name for name in self._submodules if path.startswith(f"{name}/")), None):
                return self._submodule(inner).read(posixpath.relpath(path, inner))
            mode, sha = self._files.get(path, ("", ""))
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
        return {path: (mode, sha) for mode, kind, sha, path in self._entries if kind == "blob"}

    @cached_property
    def _submodules(self) -> dict[str, str]:
        """The commit of every submodule below ``top``, by path."""
        return {path: sha for _, kind, sha, path in self._entries if kind == "commit"}

    def _submodule(self, path: str) -> Commit:
        """A submodule as this commit has it. TreeError where that is not here."""
        if path not in self._opened:
            sha = self._submodules[path]
            try:
                self._opened[path] = Commit(self.top / path, sha)
            except TreeError:
                lacks = f"{self.name} has the submodule {path} at {sha[:12]}, which is not here"
                raise TreeError(f"{lacks}: git submodule update --init, or fetch it there") from None
        return self._opened[path]

    @cached_property
    def _entries(self) -> list[tuple[str, str, str, str]]:
        """Mode, kind, object and path of all that the commit holds below ``top``."""
        listed = _checked(self.top, "ls-tree", "-r", "-z", self.sha).decode("utf-8", "surrogateescape")
        parts = ((head.split(), path) for head, _, path in (e.partition("\t") for e in listed.split("\0") if e))
        return [(mode, kind, sha, path) for (mode, kind, sha), path in parts]


def open_tree(given: str, top: Path) -> Tree:
    """The tree that ``given`` names: a folder where there is one, otherwise a commit of ``top``'s repository."""
    if not given:
        raise TreeError("'' names no tree: give a commit or a folder")
    folder = Path(given).expanduser()
    return Folder(folder.resolve(), given) if folder.is_dir() else Commit(top, given)


def sha_of(top: Path, name: str = "HEAD") -> str | None:
    """The SHA of a commit, that which is checked out at ``top`` for one; None where there is none, or no git."""
    try:
        return Commit(top, name).sha
    except TreeError:
        return None


def is_changed(top: Path) -> bool:
    """Whether a file that git tracks, at or below ``top``, is not as the commit that is checked out has it."""
    return bool(_checked(top, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--", "."))


def moved(top: Path, path: str) -> str:
    """Where a file below ``top`` is now that git takes for the one that was at ``path``: renamed since the last commit,
    or by the commit that took it away, any number of times. Empty where git tells no such file."""
    new = path
    with suppress(TreeError):  # no git
        for _ in range(_MOST_MOVES):
            new = _renamed(top, new)
            if not new or (top / new).is_file():
                return new
    return ""


def _renamed(top: Path, path: str) -> str:
    """The next name of a file; empty where git knows none."""
    last = git(top, "log", "-1", "--diff-filter=D", "--format=%H", "--", f":(literal){path}").stdout.decode().strip()
    told = ("--find-renames", "--diff-filter=R", "--name-status", "-z", "--relative")
    commands = [("diff", *told, "HEAD"), *([("show", *told, "--format=", last)] if last else [])]
    words = [os.fsdecode(word) for command in commands for word in git(top, *command).stdout.split(b"\0") if word]
    return dict(zip(words[1::3], words[2::3], strict=False)).get(path, "")


@contextmanager
def checked_out(commit: Commit, below: str | None = None) -> Iterator[Path]:
    """The files of a commit's whole repository, or those of one folder below the commit's ``top``, in a folder of their
    own; no checkout and no index is touched."""
    with tempfile.TemporaryDirectory(prefix="r3bench-head-") as made:
        folder, index = Path(made, "tree"), {"GIT_INDEX_FILE": str(Path(made, "index"))}
        top = Path(_checked(commit.top, "rev-parse", "--show-toplevel").decode().strip())
        inner = "" if below is None else ":" + posixpath.join(prefix(commit.top), posixpath.normpath(below))
        _checked(top, "read-tree", commit.sha + inner, environment=index)
        _checked(top, "checkout-index", "--all", f"--prefix={folder}/", environment=index)
        yield folder


@contextmanager
def capture_of(tree: Tree, store: str) -> Iterator[Path]:
    """Where a capture of a tree lies on disk: one of a commit in a folder that is removed afterwards."""
    if isinstance(tree, Folder):
        yield tree.top / store
    elif not store.endswith(".zip"):
        assert isinstance(tree, Commit)
        with checked_out(tree, store) as folder:
            yield folder.rename(folder.with_suffix(".zarr"))
    else:
        with tempfile.TemporaryDirectory(prefix="r3bench-head-") as made:
            path = Path(made, "capture.zarr.zip")
            path.write_bytes(tree.read(store) or b"")
            yield path


def prefix(here: Path) -> str:
    """Where a folder lies below the top of its checkout."""
    return _checked(here, "rev-parse", "--show-prefix").decode().strip()


def repository(here: Path, folder: Path) -> dict[str, str]:
    """The environment in which git takes ``folder`` for a checkout of the repository that ``here`` is in; empty where
    ``here`` is in none."""
    found = git(here, "rev-parse", "--absolute-git-dir")
    if found.returncode:
        return {}
    return {"GIT_DIR": found.stdout.decode().strip(), "GIT_WORK_TREE": str(folder)}


def _store(path: str) -> str:
    """The capture that a file belongs to; empty where it belongs to none."""
    if path.endswith(".zarr.zip"):
        return path
    return path.removesuffix("/zarr.json") if path.endswith(".zarr/zarr.json") else ""


def git(
    top: Path, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder; TreeError where there is none, or where it does not end."""
    try:
        return subprocess.run(
            ["git", "-C", str(top), *arguments],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, **environment},
        )
    except FileNotFoundError:
        raise TreeError("git is not on PATH: install it, or give a folder to compare with") from None
    except subprocess.TimeoutExpired:
        raise TreeError(f"git {arguments[0]} did not end within {_TIMEOUT_S:g} s in {top}") from None


def _checked(top: Path, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> bytes:
    done = git(top, *arguments, environment=environment)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise TreeError(f"git {arguments[0]} failed in {top}: {said[0]}")
    return done.stdout


def _unknown(top: Path, name: str) -> str:
    if git(top, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        relative = any(sign in name for sign in "~^@")  # no remote knows such a name
        command = "git fetch --unshallow" if relative else f"git fetch --depth=1 origin {name}"
        return (
            f"git knows no commit {name!r} in {top}, which is a shallow clone: fetch it with "
            f"'{command}' (actions/checkout: fetch-depth: 0)"
        )
    return f"there is no folder {name!r}, and git knows no commit of this name in {top}"

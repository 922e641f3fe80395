"""Capture stores as files: safe reading, replacement in one step, finding. Nothing here knows what a store means.

A store is a folder ``<name>.zarr`` or one file ``<name>.zarr.zip``. Writing builds a folder ``.<name>.tmp``
beside it and then swaps the two, so that a crash at any moment leaves either the old store or the new one. Where the
file system cannot swap, the old one steps aside to ``.<name>.old`` first, and the next reader or writer that finds
only that puts it back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from r3bench.errors import CaptureError
from r3bench.store.attributes import damaged

ROOT_FILE = "zarr.json"
METADATA_LIMIT = 64 << 20
SUFFIXES = (".zarr", ".zarr.zip")
PathLike = str | os.PathLike[str]
_EXCHANGE = 2
_AT_FDCWD = -100


def is_zip(path: Path) -> bool:
    return path.name.endswith(".zip")


# -- finding and reading --------------------------------------------------------------------------------------------


def find(paths: Iterable[PathLike]) -> list[Path]:
    """Every capture store at or below the paths, sorted; hidden folders, links and stores' insides are not searched.

    A file ``x.zarr`` is found, too: opening it says what is wrong.
    """
    found: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise CaptureError(f"no capture at {path}: check the path")
        found.update([path] if path.name.endswith(SUFFIXES) else _below(path))
    return sorted(found)


def _below(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in folders if name.endswith(".zarr") and not name.startswith("."))
        yield from (Path(folder, name) for name in files if name.endswith(SUFFIXES) and not name.startswith("."))
        folders[:] = [name for name in folders if not name.startswith(".") and not name.endswith(".zarr")]


def read_root(path: Path) -> bytes:
    """The root document of a store, and nothing else of it."""
    if not path.name.endswith(SUFFIXES):
        raise CaptureError(
            f"{path} is not a capture: name a folder that ends in .zarr or a file that ends in .zarr.zip"
        )
    try:
        _put_back(path)
        if is_zip(path):
            with open_zip(path) as archive:
                return archive.read(ROOT_FILE)
        return _read_regular(path / ROOT_FILE, METADATA_LIMIT)
    except (FileNotFoundError, NotADirectoryError, KeyError):
        raise _absent(path) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise damaged(str(path), f"its {ROOT_FILE} cannot be read ({error})") from error


def _absent(path: Path) -> CaptureError:
    if not path.exists():
        return CaptureError(f"no capture at {path}: check the path")
    if not is_zip(path) and not path.is_dir():
        return CaptureError(f"{path} is not a capture: a store named .zarr is a folder")
    return damaged(str(path), f"it holds no {ROOT_FILE}")


def _read_regular(path: Path, limit: int) -> bytes:
    # O_NONBLOCK: a named pipe in a store must not hang the reader; O_NOFOLLOW: a link must not lead out of it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise damaged(str(path.parent), f"its {path.name} is no regular file of at most {limit >> 20} MiB")
        return file.read(limit)


def open_zip(path: Path) -> zipfile.ZipFile:
    """An archive whose members are all stored uncompressed, once each, so that reading cannot unpack a bomb."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise damaged(str(path), f"it is no readable zip file ({error})") from error
    members = archive.infolist()
    sound = len({m.filename for m in members}) == len(members) and all(
        m.compress_type == zipfile.ZIP_STORED and m.file_size == m.compress_size and not m.flag_bits & 1
        for m in members
    )
    if not sound or sum(m.file_size for m in members) > path.stat().st_size:
        archive.close()
        raise damaged(str(path), "its zip members are packed, encrypted or repeated")
    return archive


def members(path: Path) -> Mapping[str, int]:
    """Every file inside a store with its size; CaptureError where one is a link or no regular file."""
    if is_zip(path):
        with open_zip(path) as archive:
            return MappingProxyType({m.filename: m.file_size for m in archive.infolist() if not m.is_dir()})
    return MappingProxyType(dict(_walk(path, path)))


def _walk(root: Path, folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path).relative_to(root).as_posix(), entry.stat(follow_symlinks=False).st_size
            else:
                raise damaged(str(root), f"'{entry.name}' inside is a link or special file")


def read_member(path: Path, name: str) -> bytes:
    """One small file inside a store whose members were checked."""
    if is_zip(path):
        try:
            with open_zip(path) as archive:
                return archive.read(name)
        except zipfile.BadZipFile as error:
            raise damaged(str(path), f"its {name} cannot be read ({error})") from error
    return _read_regular(path / name, METADATA_LIMIT)


def extent(path: Path, name: str) -> tuple[Path, int, int]:
    """The file that holds a member of a store whose members were checked, where it begins there, and its size."""
    if not is_zip(path):
        return path / name, 0, (path / name).stat().st_size
    with open_zip(path) as archive, open(path, "rb") as file:
        member = archive.getinfo(name)
        file.seek(member.header_offset + 26)  # the lengths of the name and of what else stands before its bytes
        before = sum(struct.unpack("<HH", file.read(4)))
        return path, member.header_offset + 30 + before, member.file_size


def parts(path: Path, nbytes: int) -> Iterator[tuple[str, int, bytes]]:
    """Every file inside a store: its name, and where each part of so many bytes begins; a file that is empty, too."""
    for name in members(path):
        with _opened(path, name) as file:
            at, part = 0, file.read(nbytes)
            while part or not at:
                yield name, at, part
                at, part = at + max(1, len(part)), file.read(nbytes)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[IO[bytes]]:
    if is_zip(path):
        with open_zip(path) as archive, archive.open(name) as file:
            yield file
    else:
        with open(path / name, "rb") as file:
            yield file


# -- replacement in one step ----------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new folder to build in; at the end it takes the place of ``path`` in one step, packed if that is a zip.

    Writers of one store wait for each other. After an exception the old store is as it was.
    """
    if not path.name.endswith(SUFFIXES):
        raise CaptureError(f"{path} cannot be a capture: its name must end in .zarr or .zarr.zip")
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target) as folder:
            building = folder / "new"
            building.mkdir()
            yield building
            _publish(building, target)
    except OSError as error:
        raise CaptureError(f"{path} cannot be written ({error.strerror}): check space and permissions") from error


@contextmanager
def _alone(target: Path) -> Iterator[Path]:
    """An empty folder beside a store, gone at the end. Its lock says that its writer lives; what the dead left goes."""
    folder = target.parent / f".{target.name}.tmp"
    descriptor = _locked(folder)
    try:
        _put_back(target)
        for left in (*folder.iterdir(), _aside(target)):
            _remove(left)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """A folder that is made where there is none, opened and locked; whoever had it before may have moved it away."""
    while True:
        folder.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
            os.close(descriptor)


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.old"


def _put_back(path: Path) -> None:
    """Undo a replacement that was cut off after the old store stepped aside."""
    if _aside(path).exists() and not path.exists():
        os.rename(_aside(path), path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _publish(building: Path, target: Path) -> None:
    if is_zip(target):
        packed = building / "packed"
        _pack(building, packed)
        _sync(packed)
        os.replace(packed, target)
    else:
        _sync_tree(building)
        _swap(building, target)
    _sync(target.parent)


def _pack(folder: Path, packed: Path) -> None:
    """Zip a folder, equal bytes for equal content: sorted, stored, without times."""
    names = [name for name, _ in _walk(folder, folder)]
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            entry.file_size = (folder / name).stat().st_size
            with open(folder / name, "rb") as file, archive.open(entry, "w") as member:
                shutil.copyfileobj(file, member)


def _swap(building: Path, target: Path) -> None:
    if not target.exists():
        os.rename(building, target)
    elif not _exchange(building, target):
        os.rename(target, _aside(target))
        os.rename(building, target)
        _remove(_aside(target))


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where this system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _sync_tree(folder: Path) -> None:
    for name, _, files in os.walk(folder, topdown=False):
        for file in files:
            _sync(Path(name, file))
        _sync(Path(name))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

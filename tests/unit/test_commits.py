"""Commits and folders as trees: what is read, what is refused, in one sentence."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from replay_case import capture

from r3bench.commits import Commit, capture_of, open_tree, sha_of
from r3bench.errors import TreeError
from r3bench.worktree import Folder, Tree, collect, lent, variant

FILES = {
    "app/main.cu": '#include "inc/a.h"\n#include "root.h"\n#include <cmath>\n',
    "app/inc/a.h": '#include "b.h"\n#include "../../outside.h"\n',
    "app/inc/b.h": '#include "a.h"\n',
    "app/root.h": "int é;\n",
    "outside.h": "secret\n",
    "captures/app/k.zarr/zarr.json": "{}",
    "captures/app/k.zarr/units/zarr.json": "{}",
    "captures/other.zarr.zip": "zip",
}


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.email=a@b.c", "-c", "user.name=a")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "app/link.h").symlink_to("inc/b.h")
    (tmp_path / "app/circle.h").symlink_to("circle.h")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


@pytest.fixture(params=["folder", "commit"])
def tree(top: Path, request: pytest.FixtureRequest) -> Tree:
    return Folder(top) if request.param == "folder" else Commit(top, "main")


def test_both_kinds_read_the_same(tree: Tree) -> None:
    assert tree.read("app/root.h") == "int é;\n".encode()
    assert tree.read("./app/../app/root.h") == "int é;\n".encode()
    assert tree.read("app/link.h") == tree.read("app/inc/b.h")
    for path in ("app", "nothing.h", "../x", "app/../../x"):
        assert tree.read(path) is None
    assert tree.stores(".") == ("captures/app/k.zarr", "captures/other.zarr.zip")
    assert tree.stores("captures/app") == ("captures/app/k.zarr",)


def test_a_submodule_is_read_as_the_commit_has_it(top: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    kernels = tmp_path_factory.mktemp("kernels")
    (kernels / "k.cu").write_text("first")
    git(kernels, "init", "-q", "-b", "main")
    git(kernels, "add", "-A")
    git(kernels, "commit", "-qm", "first")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(kernels), "deep/kernels")
    git(top, "commit", "-qm", "with a submodule")
    (top / "deep/kernels/k.cu").write_text("second")
    git(top / "deep/kernels", "commit", "-qam", "second")
    git(top, "commit", "-qam", "moved on")
    assert Commit(top, "HEAD").read("deep/kernels/k.cu") == b"second"
    assert Commit(top, "HEAD~1").read("deep/kernels/../kernels/k.cu") == b"first"
    assert Commit(top, "HEAD").read("deep/kernels/none.cu") is None
    git(top, "submodule", "deinit", "-q", "--force", "deep/kernels")
    with pytest.raises(
        TreeError, match=r"HEAD has the submodule deep/kernels at \w{12}, which is not here: git submod"
    ):
        Commit(top, "HEAD").read("deep/kernels/k.cu")


def test_a_kernels_texts_are_those_it_includes_below_its_root(tree: Tree) -> None:
    assert set(collect(tree, "main.cu", "app")) == {"main.cu", "inc/a.h", "inc/b.h", "root.h"}


def test_a_header_that_flags_led_to_is_that_of_the_tree(tree: Tree, tmp_path: Path) -> None:
    recorded = capture(tmp_path / "captures")
    assert recorded.source is not None
    files = dict.fromkeys(("main.cu", "link.h", "gone.h"), "0" * 64)
    source = replace(recorded.source, root="app", main="main.cu", files=tuple(files.items()))
    found = variant(replace(recorded, source=source), tree)
    assert found is not None
    assert [path for path, _ in found.files or ()] == ["inc/a.h", "inc/b.h", "link.h", "main.cu", "root.h"]


@pytest.mark.parametrize(("recorded", "expected"), [("inc/c.h", ["inc/c.h"]), ("sub/deep/c.h", []), ("c.h", [])])
def test_what_a_tree_includes_and_has_not_is_named(tmp_path: Path, recorded: str, expected: list[str]) -> None:
    (tmp_path / "main.cu").write_text('#include "../inc/c.h"\n#include "d.h"\n')
    (tmp_path / "d.h").write_text("")
    made = capture(tmp_path / "captures")
    assert made.source is not None
    files = tuple(dict.fromkeys(("main.cu", "d.h", recorded), "0" * 64).items())
    made = replace(made, source=replace(made.source, main="main.cu", files=files))
    found = variant(made, Folder(tmp_path))
    assert found is not None
    assert list(lent(made, found)) == expected


def test_an_empty_name_is_no_tree(top: Path) -> None:
    with pytest.raises(TreeError, match="'' names no tree: give a commit or a folder"):
        open_tree("", top)


def test_a_commit_is_read_whatever_the_checkout_holds(top: Path) -> None:
    before = Commit(top, "HEAD")
    (top / "app/root.h").write_text("changed")
    (top / "app/inc/b.h").unlink()
    assert before.read("app/root.h") == "int é;\n".encode()
    assert set(collect(before, "main.cu", "app")) == {"main.cu", "inc/a.h", "inc/b.h", "root.h"}
    assert sha_of(top) == before.sha


def test_paths_are_relative_to_a_folder_inside_the_repository(top: Path) -> None:
    assert Commit(top / "app", "main").read("root.h") == "int é;\n".encode()


def test_a_link_that_leads_to_itself_is_not_there(top: Path) -> None:
    assert Commit(top, "main").read("app/circle.h") is None


def test_a_folder_is_taken_where_there_is_one(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(top)
    found = open_tree("app", top)
    assert isinstance(found, Folder)
    assert (found.name, found.read("root.h")) == ("app", "int é;\n".encode())
    assert isinstance(open_tree("main", top), Commit)


def test_what_is_no_commit_is_one_sentence(top: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(TreeError, match="git knows no commit of this name"):
        open_tree("nowhere", top)
    with pytest.raises(TreeError, match="no name of a commit"):
        Commit(top, "--upload-pack=x")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.raises(TreeError, match="in no git repository"):
        Commit(elsewhere, "main")
    assert sha_of(elsewhere) is None


def test_a_shallow_clone_says_how_to_fetch(top: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    git(top, "commit", "-qm", "two", "--allow-empty")
    clone = tmp_path_factory.mktemp("clones") / "clone"
    git(top, "clone", "-q", "--depth=1", f"file://{top}", str(clone))
    with pytest.raises(TreeError, match=r"shallow clone: fetch it with 'git fetch --unshallow'"):
        Commit(clone, "HEAD~1")


def test_without_git_a_folder_is_asked_for(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TreeError, match="git is not on PATH"):
        Commit(top, "main")


def test_an_object_that_is_missing_is_one_sentence(top: Path) -> None:
    found = Commit(top, "main")
    assert found.read("outside.h") == b"secret\n"
    blob = subprocess.run(
        ["git", "-C", str(top), "rev-parse", "main:outside.h"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (top / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(TreeError, match="git cat-file failed"):
        found.read("outside.h")


def test_a_capture_of_a_commit_is_laid_on_disk_for_a_while(top: Path) -> None:
    for tree in (Folder(top), Commit(top, "HEAD"), Commit(top / "captures", "HEAD")):
        below = "" if tree.top.name == "captures" else "captures/"
        with capture_of(tree, f"{below}app/k.zarr") as folder, capture_of(tree, f"{below}other.zarr.zip") as packed:
            assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json")) == [
                "units/zarr.json",
                "zarr.json",
            ]
            assert packed.read_text() == "zip"
            assert packed.name.endswith(".zarr.zip")
        assert folder.exists() == packed.exists() == isinstance(tree, Folder)

"""Patches go into a tree by the command, which says what comes next."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.cli import main
from r3bench.ledger import FileChange, Ledger
from tests.unit.demo import IMPROVED
from tests.unit.grounds import keep

BEFORE = 'int other;\n\nextern "C" __global__ void k(double* x) {\n    x[0] = 2 * x[0];\n}\n'
AFTER = BEFORE.replace("2 * x[0]", "x[0] + x[0]")
RESULT = replace(
    IMPROVED, kernel="demo/k", source="kernels/miniweather/kernels.cu", before=BEFORE, after=AFTER,
    capture="captures/demo/k.zarr", relies_on=("n is even",),
)  # fmt: skip
CAPTURE = Path(__file__).parents[2] / "captures/miniweather/halo_x.zarr"


def git(*arguments: str) -> str:
    identity = ("-c", "user.email=a@b.c", "-c", "user.name=a")
    return subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one kernel, its capture, and the report of a search beside it."""
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a@b.c")
    (tmp_path / "kernels/miniweather").mkdir(parents=True)
    (tmp_path / "kernels/miniweather/kernels.cu").write_text(BEFORE)
    shutil.copytree(CAPTURE, tmp_path / "captures/demo/k.zarr")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "base")
    report.write_application("demo", [RESULT], tmp_path / "reports")
    return tmp_path


def test_a_patch_is_applied_and_the_next_steps_are_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "reports/demo/k.patch", "--check"]) == 0
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE
    (tree / "Makefile").write_text("")
    assert main(["apply", "reports/demo/k.patch"]) == 0
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == AFTER.replace(
        "extern", "// r3bench: n is even.\nextern"
    )
    assert capsys.readouterr().out.splitlines() == [
        "reports/demo/k.patch applies",
        "changed: kernels/miniweather/kernels.cu",
        "compare with the present captures: r3bench guard HEAD --device cpu --captures captures/demo",
        "rebuild: make",
        "record again, only if its results are meant to change: python -m kernels.miniweather.record",
        "undo: git apply --reverse reports/demo/k.patch",
    ]


def test_a_gain_on_a_gpu_is_compared_on_whatever_device_is_there(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.write_application("demo", [replace(RESULT, device="cuda", target="sm_90")], tree / "reports")
    assert main(["apply", "reports/demo/k.patch"]) == 0
    assert "present captures: r3bench guard HEAD --captures captures/demo\n" in capsys.readouterr().out


def test_what_is_applied_already_is_told_with_how_to_undo_it(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["apply", "reports/demo/k.patch"]) == 0
    for options in ([], ["--check"], ["--pull-request"]):
        capsys.readouterr()
        assert main(["apply", "reports/demo/k.patch", *options]) == 1
        said = capsys.readouterr().err
        assert said == (
            "r3bench: reports/demo/k.patch is applied already; to undo it: git apply --reverse reports/demo/k.patch\n"
        )
    monkeypatch.chdir(tree / "reports")
    assert main(["apply", "demo/k.patch"]) == 1
    subprocess.run(capsys.readouterr().err.partition("to undo it: ")[2], shell=True, check=True)
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE


def test_the_command_in_a_patch_works_at_the_top_of_the_repository(tree: Path) -> None:
    command = re.search("with: (git apply .*)", (tree / "reports/demo/k.patch").read_text())
    assert command is not None
    subprocess.run(command[1], shell=True, check=True)
    assert "x[0] + x[0]" in (tree / "kernels/miniweather/kernels.cu").read_text()


@pytest.fixture
def ledger(tree: Path) -> Path:
    """The ledger that the patch comes from, beside it."""
    path = tree / "reports/demo/ledger/k.jsonl"
    with Ledger.open(path) as opened:
        keep(opened, RESULT)
    report.write([path], tree / "reports")
    return path


def test_another_change_than_its_ledgers_hold_is_refused(
    tree: Path, ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patch = tree / "reports/demo/k.patch"
    whole = patch.read_text()
    assert main(["apply", str(patch), "--check"]) == 0
    patch.write_text(whole.replace("x[0] + x[0]", "x[0] + x[1]"))
    assert main(["apply", str(patch)]) == 3
    assert "k.patch is not what the ledgers beside it found: search again" in capsys.readouterr().err
    patch.write_text(whole)
    ledger.write_text(ledger.read_text().replace('"kind":"comparison"', '"kind":"note"'))
    assert main(["apply", str(patch)]) == 3
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE


@pytest.mark.usefixtures("ledger")
def test_a_commit_says_what_the_ledgers_say_whatever_stands_in_the_patch(tree: Path) -> None:
    patch = tree / "reports/demo/k.patch"
    assert "1.25x" in patch.read_text()
    patch.write_text(patch.read_text().replace("1.25x", "9.25x"))
    assert main(["apply", str(patch), "--pull-request"]) == 0
    message = git("log", "-1", "--format=%B")
    assert "1.25x (1.24 to 1.26)" in message
    assert "9.25x" not in message


def test_a_configuration_is_no_patch(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "reports/demo/k.json").write_text("{}")
    assert main(["apply", "reports/demo/k.json"]) == 3
    assert "k.json is a configuration, which changes no source (r3bench run --with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kernels/miniweather/kernels.cu", "setup.py", "changes setup.py, which is no source of captures/demo/k.zarr"),
        ("demo/k.zarr", "demo/none.zarr", "is for the capture captures/demo/none.zarr, which is not in"),
        ("demo/k.zarr", "../kernels", "is for captures/../kernels, which cannot be read"),
        ("captures/demo/k.zarr", "../k.zarr", "is for ../k.zarr, which lies outside"),
        ("captures/demo/k.zarr", "linked/k.zarr", "is for linked/k.zarr, which lies outside"),
    ],
)
def test_a_patch_of_another_file_than_its_kernels_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, says: str
) -> None:
    (tree / "setup.py").write_text(BEFORE)
    (tree / "linked").symlink_to(CAPTURE.parent)
    git("add", "-A")
    git("commit", "-qm", "one file more")
    patch = tree / "reports/demo/k.patch"
    patch.write_text(patch.read_text().replace(old, new))
    assert main(["apply", str(patch)]) == 3
    assert says in capsys.readouterr().err
    assert (tree / "setup.py").read_text() == BEFORE


def test_a_compilation_database_says_how_to_rebuild(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {
        "directory": str(tree),
        "file": "kernels/miniweather/kernels.cu",
        "arguments": ["nvcc", "-c", "kernels/miniweather/kernels.cu"],
    }
    (tree / "compile_commands.json").write_text(json.dumps([entry]))
    assert main(["apply", "reports/demo/k.patch"]) == 0
    assert "rebuild: nvcc -c kernels/miniweather/kernels.cu, and link the application again" in capsys.readouterr().out
    git("checkout", "-q", "--", "kernels")
    (tree / "compile_commands.json").write_text("{")
    for options in ([], ["--pull-request"]):
        assert main(["apply", "reports/demo/k.patch", *options]) == 3
        assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE
    assert git("branch", "--show-current") == "main\n"


def test_a_subfolder_is_as_good_as_the_top(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "reports")
    assert main(["apply", "demo/k.patch"]) == 0
    assert "x[0] + x[0]" in (tree / "kernels/miniweather/kernels.cu").read_text()


LONG = "#pragma once\r\nint n;\r\n" + "//\r\n" * 9
HEADER = FileChange(path="kernels/miniweather/größe n.cuh", before=LONG, after=LONG.replace("int n", "int m"))
INCLUDING = BEFORE.replace("int other;", '#include "größe n.cuh"')


@pytest.fixture
def several(tree: Path) -> Path:
    """A patch of two files, of which the capture knows one, and the kernel's includes the other since."""
    both = replace(RESULT, before=INCLUDING, after=INCLUDING.replace("2 * x[0]", "x[0] + x[0]"), others=(HEADER,))
    (tree / both.source).write_text(both.before)
    (tree / HEADER.path).write_bytes(HEADER.before.encode())
    entries = [{"directory": str(tree), "file": both.source, "command": "nvcc -c kernels.cu"}]
    (tree / "compile_commands.json").write_text(json.dumps(entries))
    (tree / "Makefile").write_text("")
    git("add", "-A")
    git("commit", "-qm", "several")
    with Ledger.open(tree / "reports/demo/ledger/k.jsonl") as opened:
        keep(opened, both)
    report.write([tree / "reports/demo/ledger/k.jsonl"], tree / "reports")
    return tree


def test_a_patch_of_several_files_is_applied_as_a_whole(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "reports/demo/k.patch"]) == 0
    said = capsys.readouterr().out
    assert f"changed: {RESULT.source}, {HEADER.path}\n" in said
    assert "rebuild: make\n" in said, "who else includes the header is not known"
    assert (several / HEADER.path).read_bytes() == HEADER.after.encode()
    subprocess.run(said.partition("undo: ")[2], shell=True, check=True)
    assert git("status", "--porcelain", "kernels") == ""
    (several / HEADER.path).write_bytes(HEADER.after.encode())
    assert main(["apply", "reports/demo/k.patch"]) == 1, "one file has its part already"
    assert (several / RESULT.source).read_text() == INCLUDING


def test_a_pull_request_takes_all_files_of_a_patch(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (several / HEADER.path).write_bytes((HEADER.before + "// mine\r\n").encode())
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 3
    git("checkout", "-q", "--", "kernels")
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 0
    assert git("show", "--name-only", "-z", "--format=").split("\0")[:-1] == [HEADER.path, RESULT.source]
    assert f"{HEADER.path} has changes that are in no commit" in capsys.readouterr().err


def test_where_a_further_file_went_is_told(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("mv", HEADER.path, "kernels/n.cuh")
    git("commit", "-qm", "moved")
    assert main(["apply", "reports/demo/k.patch"]) == 1
    assert f"({HEADER.path} is kernels/n.cuh now); search again on this tree" in capsys.readouterr().err


OTHERS = {
    "a new file": "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n",
    "a second file": "diff --git a/other b/other\n--- a/other\n+++ b/other\n@@ -1 +1 @@\n-1\n+2\n",
    "a file without a header": "--- a/other\n+++ b/other\n@@ -1 +1 @@\n-1\n+2\n",
    "a mode": "diff --git a/other b/other\nold mode 100644\nnew mode 100755\n",
    "a name": "diff --git a/other b/name\nsimilarity index 100%\nrename from other\nrename to name\n",
    "a deletion": "diff --git a/other b/other\ndeleted file mode 100644\n--- a/other\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-1\n",
    "a link": "diff --git a/link b/link\nindex d00491f..0cfbf08 120000\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-other\n"
    "\\ No newline at end of file\n+/etc\n\\ No newline at end of file\n",
}


TEXT = ("a second file", "a file without a header")  # which the capture does not know


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("what", OTHERS)
def test_a_patch_changes_nothing_but_the_texts_of_sources(
    what: str, alone: bool, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "other").write_text("1\n")
    (tree / "link").symlink_to("other")
    git("add", "-A")
    git("commit", "-qm", "more")
    patch = tree / "reports/demo/k.patch"
    evidence, _, change = patch.read_text().partition("diff --git ")
    own = "" if alone else f"diff --git {change}"
    patch.write_text(evidence + own + OTHERS[what])
    git("commit", "-qam", "patch")
    assert main(["apply", str(patch)]) == 3
    said = "changes other, which is no source of" if what in TEXT else "does more than to change the text of files"
    assert said in capsys.readouterr().err
    assert git("status", "--porcelain") == ""


def test_a_commit_that_a_hook_refuses_leaves_all_as_it_was(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "other").write_text("not to be committed")
    git("add", "other")
    hook = tree / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho formatted >> kernels/miniweather/kernels.cu\necho not formatted\nexit 1\n")
    hook.chmod(0o755)
    before = git("status", "--porcelain")
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 3
    assert "git commit failed" in (said := capsys.readouterr().err)
    assert "not formatted" in said
    assert git("branch", "--format=%(refname:short)") == "main\n"
    assert git("status", "--porcelain") == before
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE


def test_a_pull_request_takes_no_change_of_the_users_along(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "kernels/miniweather/kernels.cu").write_text(f"{BEFORE}\n\n\n\n// mine\n")
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 3
    assert "kernels/miniweather/kernels.cu has changes that are in no commit" in capsys.readouterr().err
    assert git("branch", "--show-current") == "main\n"


def test_a_tree_that_moved_on_is_left_alone(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "kernels/miniweather/kernels.cu").write_text(BEFORE.replace("2 *", "3 *"))
    assert main(["apply", "reports/demo/k.patch"]) == 1
    assert "does not apply: error: patch failed: kernels/miniweather/kernels.cu:" in capsys.readouterr().err
    assert (tree / "kernels/miniweather/kernels.cu").read_text() == BEFORE.replace("2 *", "3 *")


def test_where_git_says_that_a_file_went_is_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("mv", "kernels/miniweather/kernels.cu", "kernels/weather.cu")
    git("commit", "-qm", "moved")
    assert main(["apply", "reports/demo/k.patch"]) == 1
    said = capsys.readouterr().err
    assert "(kernels/miniweather/kernels.cu is kernels/weather.cu now); search again on this tree" in said
    git("rm", "-q", "kernels/weather.cu")
    assert main(["apply", "reports/demo/k.patch"]) == 1
    assert " is kernels/" not in capsys.readouterr().err


def test_what_no_search_wrote_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "any.patch").write_text("diff --git a/x b/x\n")
    assert main(["apply", "any.patch"]) == 3
    assert main(["apply", "none.patch"]) == 3
    assert "a search" in capsys.readouterr().err


@pytest.mark.parametrize("below", [True, False])
@pytest.mark.parametrize("name", ["Kernel: demo/other", "Capture: captures/demo/other.zarr", "Device: cuda"])
def test_what_a_patch_is_for_stands_once_and_above_the_diff(
    name: str, below: bool, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patch = tree / "reports/demo/k.patch"
    text = patch.read_text()
    patch.write_text(f"{text}R3bench-{name}\n" if below else f"R3bench-{name}\n{text}")
    assert main(["apply", "--check", str(patch)]) == 3
    above, diff, change = text.partition("diff --git ")
    patch.write_text(f"{diff}{change}{above}")  # both once, but only where git no longer reads
    assert main(["apply", "--check", str(patch)]) == 3
    assert capsys.readouterr().err.count("does not say once, above its diff, which kernel it is for") == 2


def test_a_pull_request_is_a_branch_a_commit_and_a_text(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "other").write_text("not to be committed")
    git("add", "other")
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 0
    assert (tree / "reports/demo/k.branch").read_text() == "r3bench/k\n"
    assert git("branch", "--show-current") == "r3bench/k\n"
    assert git("show", "--name-only", "--format=%P").split() == [
        git("rev-parse", "main").strip(),
        "kernels/miniweather/kernels.cu",
    ]
    message = git("show", "-s", "--format=%B")
    assert message.startswith("demo/k, 1.25x faster on a CPU: ")
    assert "our compiler, default configuration: faster, 1.25x" in message
    assert "Valid where: n is even." in message
    assert "R3bench-Capture: captures/demo/k.zarr" in message
    body = (tree / "reports/demo/k.body.md").read_text()
    assert "your own compiler, on the patched source: not measured" in body
    base = git("rev-parse", "--short", "main").strip()
    compare = f"compare with the present captures: r3bench guard {base} --device cpu --captures captures/demo"
    assert f"- {compare}\n" in body
    assert "git apply" not in body + message
    assert capsys.readouterr().out.splitlines() == [
        "changed: kernels/miniweather/kernels.cu",
        compare,
        "rebuild: build the application as you did before",
        "record again, only if its results are meant to change: python -m kernels.miniweather.record",
        f"committed on r3bench/k, where you are now; the pull request's text is in {tree}/reports/demo/k.body.md",
        f"its name for scripts is in {tree}/reports/demo/k.branch",
        "push it: git push -u origin r3bench/k",
        "go back: git checkout main",
    ]


def test_a_commit_has_a_short_subject_and_wrapped_lines(tree: Path) -> None:
    description = "; ".join(f"change {number} of the loop in any of its rounds" for number in range(9))
    patch = tree / "reports/demo/k.patch"
    _, _, rest = patch.read_text().partition("\n\n")
    wrapped = "\n".join(textwrap.wrap(f"demo/k: {description}", 100, subsequent_indent="  "))
    patch.write_text(f"{wrapped}\n\n{rest}")
    git("checkout", "-q", "--detach")
    assert main(["apply", "reports/demo/k.patch", "--pull-request"]) == 0
    message = git("show", "-s", "--format=%B").rstrip("\n")
    subject, blank, *lines = message.split("\n")
    assert subject == "demo/k: change 0 of the loop in any of its rounds; change 1 of the ..."
    assert blank == ""
    assert max(map(len, (subject, *lines))) <= 72
    assert " ".join(message.split("\n\n")[1].split()) == f"demo/k: {description}"
    assert "in   any" not in message
    assert git("show", "-s", "--format=%(trailers:only,unfold)").split("\n")[:3] == [
        "R3bench-Kernel: demo/k",
        "R3bench-Capture: captures/demo/k.zarr",
        "R3bench-Device: cpu",
    ]

"""The comment on a pull request: from foreign data, by our own code, in place of the one before."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from r3bench.guard import Gate, Guarded, Ruling
from r3bench.guard.documents import About, document, row

TOP = Path(__file__).parents[2]

# Answers as the REST interface does, from files; keeps what was sent.
GH = """\
import json, os, sys
from pathlib import Path
folder, arguments = Path(os.environ["FAKE"]), sys.argv[2:]
if "POST" in arguments or "PATCH" in arguments:
    (folder / "sent.json").write_text(json.dumps(arguments))
    sys.exit()
place = next(a for a in arguments if a.startswith("repos/"))
name = place.rpartition("/")[2]
sys.stdout.buffer.write((folder / name).read_bytes())
"""


def guarded(detail: str = "fine") -> dict[str, Any]:
    about = About(base=("main", None), head=("working tree", None), fail_on=("wrong",), asked=False, reproduce="pytest")
    found = Guarded(kernel="app/k", ruling=Ruling.WRONG, detail=detail, gate=Gate())
    return document([row(found, "captures/k.zarr", True)], {"device": "cpu", "target": "x", "conditions": {}}, about)


def packed(data: bytes, name: str = "report.json") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return held.getvalue()


class GitHub:
    """A run with one artifact, a pull request and its comments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "gh").write_text(f"#!{sys.executable}\n{GH}")
        (folder / "gh").chmod(0o755)
        self.put("artifacts", {"artifacts": [{"id": 5, "name": "r3bench-comment", "size_in_bytes": 900}]})
        self.put("pulls", [{"number": 1, "head": {"sha": "old"}}, {"number": 7, "head": {"sha": "new"}}])
        self.put("comments", [[]])
        self.zip = folder / "zip"
        self.zip.write_bytes(packed(json.dumps(guarded()).encode()))

    def put(self, name: str, data: Any) -> None:
        (self.folder / name).write_text(json.dumps(data))

    def run(self) -> subprocess.CompletedProcess[str]:
        own = {"REPOSITORY": "o/r", "RUN": "3", "HEAD": "o:b", "HEAD_SHA": "new", "FAKE": str(self.folder)}
        path = f"{self.folder}:{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, TOP / ".github/actions/comment.py"],
            env={**os.environ, **own, "PATH": path, "PYTHONPATH": str(TOP)},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def sent(self) -> list[str]:
        path = self.folder / "sent.json"
        found: list[str] = json.loads(path.read_text()) if path.exists() else []
        return found


@pytest.fixture
def github(tmp_path: Path) -> GitHub:
    return GitHub(tmp_path)


def test_the_first_comment_is_written(github: GitHub) -> None:
    done = github.run()
    assert done.returncode == 0, done.stderr
    assert github.sent[:3] == ["-X", "POST", "repos/o/r/issues/7/comments"]
    assert github.sent[4].startswith("body=<!-- r3bench: guard app -->")


def test_the_next_replaces_our_own_only(github: GitHub) -> None:
    marker = "<!-- r3bench: guard app -->"
    mine, theirs = ({"login": name} for name in ("github-actions[bot]", "somebody"))
    comments = [(11, theirs, marker), (12, mine, "other"), (13, mine, f"{marker}\nold")]
    github.put("comments", [[{"id": i, "user": user, "body": body}] for i, user, body in comments])
    assert github.run().returncode == 0
    assert github.sent[:3] == ["-X", "PATCH", "repos/o/r/issues/comments/13"]


def test_what_a_document_says_is_escaped(github: GitHub) -> None:
    hostile = "@everyone <img src=x onerror=y> [a](javascript:b) | ``` \n# big"
    github.zip.write_bytes(packed(json.dumps(guarded(hostile)).encode()))
    assert github.run().returncode == 0
    body = github.sent[4]
    assert "<img" not in body.replace("\\<img", "")
    assert "\n# big" not in body


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed(b"{}"), "ValidationError"),
        (packed(b" " * 8_000_001), "more than 8000000 bytes"),
        (packed(b"{", "other.json"), "report.json"),
        (b"no archive", "BadZipFile"),
    ],
)
def test_what_is_no_document_is_refused(github: GitHub, data: bytes, says: str) -> None:
    github.zip.write_bytes(data)
    done = github.run()
    assert done.returncode != 0
    assert says in done.stderr
    assert github.sent == []


def test_a_large_artifact_is_not_even_fetched(github: GitHub) -> None:
    github.put("artifacts", {"artifacts": [{"id": 5, "name": "r3bench-comment", "size_in_bytes": 8_000_001}]})
    github.zip.unlink()
    done = github.run()
    assert done.returncode == 0
    assert "no document of a size" in done.stdout


def test_a_pull_request_that_moved_on_gets_no_old_answer(github: GitHub) -> None:
    github.put("pulls", [{"number": 7, "head": {"sha": "newer"}}])
    assert "no open pull request" in github.run().stdout
    assert github.sent == []

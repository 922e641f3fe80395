"""Puts a guard's document on its pull request, in place of the comment before.

The document comes from a job that ran foreign code, so it is data: its size and its schema are checked, and our own
code draws the comment, which escapes all of it. Which pull request it belongs to is what GitHub says of the run.
Needs REPOSITORY, RUN, HEAD (owner:branch), HEAD_SHA, and what gh needs.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema

import r3bench.report

ARTIFACT, MEMBER, MOST_BYTES = "r3bench-comment", "report.json", 8_000_000
AUTHOR = "github-actions[bot]"
SCHEMA = Path(r3bench.report.__file__).with_name("schema.json")


def api(*arguments: str) -> bytes:
    return subprocess.run(["gh", "api", *arguments], check=True, stdout=subprocess.PIPE).stdout


def artifact(repository: str, run: str) -> int | None:
    """The run's document, if it has one of a size to be read."""
    found = json.loads(api(f"repos/{repository}/actions/runs/{run}/artifacts"))["artifacts"]
    sizes = {one["id"]: one["size_in_bytes"] for one in found if one["name"] == ARTIFACT}
    return next((number for number, size in sizes.items() if size <= MOST_BYTES), None)


def unpacked(packed: bytes) -> Any:
    """The document in an artifact. It is never written to a file, whatever paths the archive names."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open(MEMBER) as member:
        data = member.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        sys.exit(f"{MEMBER} holds more than {MOST_BYTES} bytes")
    document = json.loads(data)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    return document


def pull_request(repository: str, head: str, sha: str) -> int | None:
    """The open pull request whose head is this commit; one that moved on gets no answer of yesterday."""
    found = json.loads(api("-X", "GET", f"repos/{repository}/pulls", "-f", "state=open", "-f", f"head={head}"))
    return next((one["number"] for one in found if one["head"]["sha"] == sha), None)


def comment(repository: str, number: int, text: str) -> None:
    """Replace the comment that begins with the same marker, or write the first one."""
    marker = text.partition("\n")[0]
    place = f"repos/{repository}/issues/{number}/comments"
    pages = json.loads(api("--paginate", "--slurp", place))
    earlier = [one for page in pages for one in page if one["user"]["login"] == AUTHOR]
    own = next((one["id"] for one in earlier if one["body"].startswith(marker)), None)
    where = ("-X", "POST", place) if own is None else ("-X", "PATCH", f"repos/{repository}/issues/comments/{own}")
    api(*where, "--raw-field", f"body={text}")


def main() -> None:
    repository, run, head, sha = (os.environ[name] for name in ("REPOSITORY", "RUN", "HEAD", "HEAD_SHA"))
    document, number = artifact(repository, run), pull_request(repository, head, sha)
    if document is None or number is None:
        print("no document of a size to be read, or no open pull request with this commit at its head")
        return
    found = unpacked(api(f"repos/{repository}/actions/artifacts/{document}/zip"))
    comment(repository, number, r3bench.report.markdown(found))


if __name__ == "__main__":
    main()

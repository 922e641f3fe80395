"""``r3bench annotate``: what a job of GitHub Actions shows of a guard's document."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3bench.errors import TreeError
from r3bench.symbols import full_name

if TYPE_CHECKING:
    from r3bench.report import Document

_MOST = 10


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "show a guard's report.json in GitHub Actions: annotations, job summary, outputs"
    parser = commands.add_parser("annotate", help=text, description=text)
    parser.add_argument("report", type=Path, help="report.json of a guard")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="append Markdown ($GITHUB_STEP_SUMMARY)")
    parser.add_argument("--outputs", type=Path, metavar="FILE", help="append verdict and counts ($GITHUB_OUTPUT)")
    parser.set_defaults(run=annotate)


def annotate(arguments: argparse.Namespace) -> int:
    """Print the annotations, write what was asked for."""
    from r3bench.report import markdown

    document = read(arguments.report)
    for line in workflow_commands(document):
        print(line)
    if arguments.summary:
        _append(arguments.summary, markdown(document))
    if arguments.outputs:
        _append(arguments.outputs, "".join(f"{name}={value}\n" for name, value in outputs(document)))
    return 0


def read(path: Path) -> Document:
    """A guard's document; LedgerError where a file is no report, TreeError where it is that of a search."""
    from r3bench.report import load

    document = load(path)
    if document["kind"] != "guard":
        raise TreeError(f"{path} is the report of a {document['kind']}, not of a guard: name that of r3bench guard")
    return document


def workflow_commands(document: Mapping[str, Any]) -> Iterator[str]:
    """Workflow commands: the worst kernels as errors, those that answer nothing as warnings, and the sentence."""
    guard = document["guard"]
    failing = [row for row in guard["kernels"] if row["fails"]]
    declined = [row for row in guard["kernels"] if row["verdict"] in ("rerecorded", "unclear", "invalid", "changed")]
    for level, rows in (("error", failing), ("warning", [row for row in declined if row not in failing])):
        for row in rows[:_MOST]:
            yield _command(
                level, f"{full_name(row['kernel'])}: {row['verdict']}", row["detail"], row["source"], row["line"]
            )
    for error in guard["errors"][:_MOST]:
        yield _command("error", "could not be guarded", error)
    yield _command("notice", "r3bench guard", guard["sentence"])


def _command(level: str, title: str, text: str, file: str | None = None, line: int | None = None) -> str:
    place = f"file={_property(file)},line={int(line)}," if file is not None and line is not None else ""
    return f"::{level} {place}title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    """Text that cannot end the command it stands in."""
    return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def outputs(document: Mapping[str, Any]) -> Iterator[tuple[str, str | int]]:
    """The verdict, a word of ours, and how many kernels there are of each kind."""
    guard = document["guard"]
    verdicts = [row["verdict"] for row in guard["kernels"]]
    known = ("pass", "fail", "declined", "error")
    yield "verdict", guard["verdict"] if guard["verdict"] in known else "error"
    yield "kernels", len(verdicts)
    for name in ("slower", "wrong", "faster", "unclear"):
        yield name, verdicts.count(name)


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)

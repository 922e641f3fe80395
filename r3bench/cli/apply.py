"""``r3bench apply``: put a patch of a report into the source tree, and say what comes next."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from r3bench.commits import git
from r3bench.errors import CaptureError, TreeError

_FIELD = re.compile(r"^R3bench-(Kernel|Capture): (.+)$", re.MULTILINE)
_CHANGED = re.compile(r"^diff --git a/(.+) b/\1$", re.MULTILINE)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "apply a patch of a report, and say how to rebuild, record again and compare"
    parser = commands.add_parser("apply", help=text, description=f"{text}; 1 where it does not apply.")
    parser.add_argument("patch", type=Path, help="a .patch that a search wrote")
    parser.add_argument("--check", action="store_true", help="only say whether it applies")
    parser.add_argument(
        "--pull-request",
        action="store_true",
        help="commit it on a branch of its own, and write the names and the text of a pull request; nothing is pushed",
    )
    parser.set_defaults(run=apply)


def apply(arguments: argparse.Namespace) -> int:
    """Check, apply, tell; 1 where git refuses the patch."""
    here, patch = Path.cwd(), arguments.patch.resolve()
    text = read(patch)
    refused = git(here, "apply", "--check", str(patch))
    if refused.returncode:
        said = refused.stderr.decode(errors="replace").strip().splitlines()
        why = said[0] if said else "git gives no reason"
        print(f"r3bench: {arguments.patch} does not apply: {why}; search again on this tree", file=sys.stderr)
        return 1
    if arguments.check:
        print(f"{arguments.patch} applies")
        return 0
    if arguments.pull_request:
        _on_a_branch(here, patch, text)
    else:
        done(here, "apply", str(patch))
        print("\n".join(next_steps(here, text)))
    return 0


def read(patch: Path) -> str:
    """A patch that a search wrote; TreeError for anything else."""
    try:
        text = patch.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TreeError(f"{patch} cannot be read ({error}): name a .patch that a search wrote") from error
    if len(dict(_FIELD.findall(text))) != 2:
        raise TreeError(f"{patch} does not say which kernel it is for: name a .patch that a search wrote")
    return text


def done(here: Path, *arguments: str) -> None:
    """Run git; TreeError with its first words where it fails."""
    ended = git(here, *arguments)
    if ended.returncode:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip().splitlines()
        raise TreeError(f"git {arguments[0]} failed in {here}: {said[0] if said else 'it gives no reason'}")


# -- what comes next --------------------------------------------------------------------------------------------------


def next_steps(here: Path, text: str) -> Iterator[str]:
    """What was changed, and the commands that rebuild, record again and compare."""
    capture = dict(_FIELD.findall(text))["Capture"]
    changed = _CHANGED.findall(text)
    yield f"changed: {', '.join(changed)}"
    yield f"rebuild: {_rebuild(here, changed)}"
    yield f"record again: {_record(here, capture)}"
    yield f"compare: r3bench guard HEAD --captures {shlex.quote(capture)}"


def _rebuild(here: Path, changed: list[str]) -> str:
    """How the file is compiled, where a compilation database says so, or how its kind of project is built."""
    for database in (here / "compile_commands.json", here / "build/compile_commands.json"):
        if (found := _compiled(database, {(here / name).resolve() for name in changed})) is not None:
            return f"{found}, and link the application again"
    for file, command in (("CMakeLists.txt", "cmake --build build"), ("Makefile", "make")):
        if (here / file).exists():
            return command
    return "build the application as you did before"


def _compiled(database: Path, changed: set[Path]) -> str | None:
    if not database.is_file():
        return None
    try:
        entries = json.loads(database.read_bytes())
        for entry in entries:
            if (Path(entry["directory"]) / entry["file"]).resolve() in changed:
                return str(entry.get("command") or shlex.join(entry["arguments"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TreeError(f"{database} is no compilation database ({error}): write it again") from error
    return None


def _record(here: Path, capture: str) -> str:
    """The application's own command where the capture knows it; a driver in Python records by itself."""
    from r3bench import store

    try:
        command = store.open_capture(here / capture).command
    except CaptureError:
        command = ()
    if not command:
        return "run the application under r3bench record"
    if command[0].startswith("python"):
        return shlex.join(command)
    return f"r3bench record --out {shlex.quote(PurePosixPath(capture).parent.as_posix())} -- {shlex.join(command)}"


# -- a pull request ---------------------------------------------------------------------------------------------------


def _on_a_branch(here: Path, patch: Path, text: str) -> None:
    """A branch from HEAD with one commit: the patch, its evidence as the message. Body and branch lie beside it."""
    message = text.partition("\ndiff --git ")[0].strip() + "\n"
    branch = "r3bench/" + re.sub(r"[^\w.-]+", "-", patch.stem).strip("-.")
    title, _, evidence = message.partition("\n\n")
    title = " ".join(title.split())
    done(here, "switch", "--create", branch)
    done(here, "apply", "--index", str(patch))
    done(here, "commit", "--quiet", "--cleanup=verbatim", "--message", message, "--", *_CHANGED.findall(text))
    body = f"{title}\n\n```text\n{evidence.replace('```', chr(39) * 3)}```\n\n" + "\n".join(
        f"- {line}" for line in next_steps(here, text)
    )
    branch_file, body_file = patch.with_suffix(".branch"), patch.with_suffix(".body.md")
    branch_file.write_text(f"{branch}\n", encoding="utf-8")
    body_file.write_text(f"{body}\n", encoding="utf-8")
    print(f"committed on {branch}; the pull request's text is in {body_file}")
    print(f"push it: git push -u origin {shlex.quote(branch)}")

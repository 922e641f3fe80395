"""``r3bench apply``: put a patch of a report into the source tree, and say what comes next."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir
from pathlib import Path, PurePosixPath

from r3bench.commits import git, moved
from r3bench.errors import CaptureError, TreeError
from r3bench.files import write_text
from r3bench.worktree import Folder, place_of, variant

_FIELD = re.compile(r"^R3bench-(Kernel|Capture|Device): (.+)$", re.MULTILINE)
WIDTH = 72  # characters of a commit message's lines


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "apply a patch of a report, and say how to compare, rebuild and record again"
    parser = commands.add_parser("apply", help=text, description=f"{text}; 1 where it does not apply")
    parser.add_argument("patch", type=Path, help="a .patch that a search wrote")
    parser.add_argument("--check", action="store_true", help="only say whether it applies")
    parser.add_argument(
        "--pull-request",
        action="store_true",
        help="commit it on a branch of its own, stay there, and write the text of a pull request to <kernel>.body.md, "
        "and the branch's name to <kernel>.branch for scripts that push; nothing is pushed",
    )
    parser.set_defaults(run=apply)


def apply(arguments: argparse.Namespace) -> int:
    """Check, apply, tell; 1 where git refuses the patch. Everything is read before anything is changed."""
    top, patch = _top(Path.cwd()), arguments.patch.resolve()
    text = read(patch)
    refused = git(top, "apply", "--check", str(patch))
    if refused.returncode and not git(top, "apply", "--reverse", "--check", str(patch)).returncode:
        print(f"r3bench: {arguments.patch} is applied already; to undo it: {undoing(top, patch)}", file=sys.stderr)
        return 1
    if refused.returncode:
        said = refused.stderr.decode(errors="replace").strip().splitlines()
        why = said[0] if said else "git gives no reason"
        counted = git(top, "apply", "--numstat", "-z", str(patch)).stdout
        gone = [name for _, name in _counted(counted) if not (top / name).is_file()]
        went = "".join(f" ({name} is {new} now)" for name in gone if (new := moved(top, name)))
        print(f"r3bench: {arguments.patch} does not apply: {why}{went}; search again on this tree", file=sys.stderr)
        return 1
    changed = changed_files(top, patch)
    require_sources(top, patch, text, changed)
    text = grounded(top, patch, text)
    if arguments.check:
        print(f"{arguments.patch} applies")
    elif arguments.pull_request:
        _on_a_branch(top, patch, text, changed)
    else:
        steps = list(next_steps(top, text, "HEAD", changed))
        done(top, "apply", str(patch))
        print("\n".join((*steps, f"undo: {undoing(top, patch)}")))
    return 0


def undoing(top: Path, patch: Path) -> str:
    """The command that takes a patch back, from where the user is: git leaves out what lies above its folder."""
    if Path.cwd() != top.resolve():
        return f"git -C {shlex.quote(str(top))} apply --reverse {shlex.quote(str(patch))}"
    shown = patch.relative_to(top.resolve()) if patch.is_relative_to(top.resolve()) else patch
    return f"git apply --reverse {shlex.quote(str(shown))}"


def _top(here: Path) -> Path:
    """The top of the checkout, where git applies the whole of a patch; the folder itself where there is none."""
    found = git(here, "rev-parse", "--show-toplevel")
    return here if found.returncode else Path(os.fsdecode(found.stdout).rstrip("\n"))


def changed_files(top: Path, patch: Path) -> list[str]:
    """The files whose texts a patch changes, as git reads the patch; TreeError where it does anything else."""
    counted = _counted(done(top, "apply", "--numstat", "-z", str(patch)))
    modes = done(top, "apply", "--summary", str(patch))
    paths = [path for _, path in counted]
    regular = all((top / path).is_file() and (top / path).resolve() == top.resolve() / path for path in paths)
    if any(added == "-" for added, _ in counted) or modes or not regular:
        raise TreeError(f"{patch} does more than to change the text of files: name a .patch that a search wrote")
    return paths


def _counted(numstat: bytes) -> list[tuple[str, str]]:
    """Of what git counts in a patch, the lines that each file gains (``-`` where it is no text), and its path."""
    lines = (os.fsdecode(line).split("\t", 2) for line in numstat.split(b"\0")[:-1])
    return [(added, path) for added, _, path in lines]


def require_sources(top: Path, patch: Path, text: str, changed: Sequence[str]) -> None:
    """TreeError unless all that a patch changes are sources of the capture that it names, recorded ones or here."""
    from r3bench import store

    name = dict(_FIELD.findall(text))["Capture"]
    if not (top / name).resolve().is_relative_to(top.resolve()):
        raise TreeError(f"{patch} is for {name}, which lies outside {top}: name a .patch that a search wrote")
    if not (top / name).exists():
        plainly = f"git apply {shlex.quote(str(patch))} takes the patch without asking which kernel it is for"
        raise TreeError(f"{patch} is for the capture {name}, which is not in {top}: record it there; {plainly}")
    try:
        capture = store.open_capture(top / name)
        now = variant(capture, Folder(top))
    except CaptureError as error:
        raise TreeError(f"{patch} is for {name}, which cannot be read ({error})") from error
    source, here = capture.source, now.files or () if now is not None else ()
    known = {place_of(source, file) for file, _ in (*source.files, *here)} if source is not None else set()
    if strange := [path for path in changed if path not in known]:
        which = f"{strange[0]}, which is no source of {name}"
        raise TreeError(f"{patch} changes {which}: name a .patch that a search wrote")


def grounded(top: Path, patch: Path, text: str) -> str:
    """A patch with the evidence that the ledgers beside it carry, as it is where none lie there; TreeError where they
    hold no such change."""
    ledgers = sorted(patch.parent.glob("ledger/*.jsonl"))
    if not ledgers:
        return text
    from r3bench import report

    with chdir(top):  # paths are named from there
        results = [report.portable(one) for found in report.gather(ledgers)[0].values() for one in found]
        own = (one for one in results if one.kernel == dict(_FIELD.findall(text))["Kernel"])
        drawn = next((report.patch(one, results, patch.parent) for one in own), None) or ""
    if drawn.partition("\ndiff --git ")[2] != text.partition("\ndiff --git ")[2]:
        raise TreeError(f"{patch} is not what the ledgers beside it found: search again, and take the patch as it is")
    return drawn


def read(patch: Path) -> str:
    """A patch that a search wrote; TreeError for anything else, so for fields that its reader does not see first."""
    if patch.suffix == ".json":
        using = f"r3bench run --with {shlex.quote(str(patch.parent))} -- ./app runs a CUDA application with it"
        raise TreeError(f"{patch} is a configuration, which changes no source ({using}): name a .patch of a search")
    try:
        text = patch.read_bytes().decode()  # as it is: carriage returns are the source's
    except (OSError, UnicodeDecodeError) as error:
        raise TreeError(f"{patch} cannot be read ({error}): name a .patch that a search wrote") from error
    above = f"\n{text}".partition("\ndiff --git ")[0]
    fields = sorted(name for name, _ in _FIELD.findall(text))
    known = (["Capture", "Kernel"], ["Capture", "Device", "Kernel"])
    if fields not in known or len(_FIELD.findall(above)) != len(fields):
        raise TreeError(f"{patch} does not say once, above its diff, which kernel it is for: name a search's .patch")
    return text


def done(here: Path, *arguments: str) -> bytes:
    """What git prints; TreeError with its own words where it fails."""
    ended = git(here, *arguments)
    if ended.returncode:
        said = (ended.stderr.strip() or ended.stdout.strip()).decode(errors="replace").splitlines()
        raise TreeError(f"git {arguments[0]} failed in {here}: {'; '.join(said) or 'it gives no reason'}")
    return ended.stdout


# -- what comes next --------------------------------------------------------------------------------------------------


def next_steps(here: Path, text: str, base: str, changed: Sequence[str]) -> Iterator[str]:
    """Which files were changed, and the commands that compare with the commit ``base``, rebuild and record again.

    Comparing comes first: a capture that was recorded again holds whatever the patched kernel does. All kernels of the
    application are compared: a patch may change a function that several of them call, and the search timed only one.
    """
    fields = dict(_FIELD.findall(text))
    capture = fields["Capture"]
    device = " --device cpu" if fields.get("Device") == "cpu" else ""  # where the gain was claimed
    yield f"changed: {', '.join(changed)}"
    yield f"compare with the present captures: r3bench guard {base}{device} --captures {shlex.quote(_folder(capture))}"
    yield f"rebuild: {_rebuild(here, changed)}"
    yield f"record again, only if its results are meant to change: {_record(here, capture)}"


def _rebuild(here: Path, changed: Sequence[str]) -> str:
    """How the files are compiled, where a compilation database says so of all of them (others include the rest), or how
    their kind of project is built."""
    for database in (here / "compile_commands.json", here / "build/compile_commands.json"):
        if found := _compiled(database, {(here / name).resolve() for name in changed}):
            return f"{found}, and link the application again"
    for file, command in (("CMakeLists.txt", "cmake --build build"), ("Makefile", "make")):
        if (here / file).exists():
            return command
    return "build the application as you did before"


def _compiled(database: Path, changed: set[Path]) -> str:
    """The commands that compile all of these files; empty where one has none."""
    if not database.is_file():
        return ""
    try:
        commands: dict[Path, str] = {}
        for entry in json.loads(database.read_bytes()):
            file = (Path(entry["directory"]) / entry["file"]).resolve()
            if file in changed:
                commands.setdefault(file, str(entry.get("command") or shlex.join(entry["arguments"])))
    except (ValueError, KeyError, TypeError) as error:
        raise TreeError(f"{database} is no compilation database ({error}): write it again") from error
    return " && ".join(commands.values()) if commands.keys() == changed else ""


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
    return f"r3bench record --out {shlex.quote(_folder(capture))} -- {shlex.join(command)}"


def _folder(capture: str) -> str:
    return PurePosixPath(capture).parent.as_posix()


# -- a pull request ---------------------------------------------------------------------------------------------------


def _on_a_branch(top: Path, patch: Path, text: str, changed: Sequence[str]) -> None:
    """A branch from HEAD with one commit: the patch, its evidence as the message. Body and branch lie beside it."""
    for path in changed:
        if git(top, "diff", "--quiet", "HEAD", "--", _literal(path)).returncode:
            raise TreeError(f"{path} has changes that are in no commit, or there is no commit: commit them first")
    base = done(top, "rev-parse", "--short", "HEAD").decode().strip()
    was = git(top, "symbolic-ref", "--quiet", "--short", "HEAD").stdout.decode().strip() or base
    steps = list(next_steps(top, text, base, changed))
    branch = "r3bench/" + re.sub(r"[^\w.-]+", "-", patch.stem).strip("-.")
    title, evidence = _said(text)
    _commit(top, patch, branch, was, _message(title, evidence), changed)
    lines = "\n".join(f"- {line}" for line in steps)
    body = f"{title}\n\n```text\n{evidence.replace('```', chr(39) * 3)}\n```\n\n{lines}\n"
    branch_file, body_file = patch.with_suffix(".branch"), patch.with_suffix(".body.md")
    write_text(branch_file, f"{branch}\n")
    write_text(body_file, body)
    print("\n".join(steps))
    print(f"committed on {branch}, where you are now; the pull request's text is in {body_file}")
    print(f"its name for scripts is in {branch_file}")
    print(f"push it: git push -u origin {shlex.quote(branch)}")
    print(f"go back: git checkout {shlex.quote(was)}")


def _said(text: str) -> tuple[str, str]:
    """A patch's title in one line, and its evidence wrapped, without how to apply it: here it is applied."""
    from r3bench.report.patches import APPLY

    title, _, evidence = text.partition("\ndiff --git ")[0].strip().partition("\n\n")
    lines = [line for line in evidence.splitlines() if not line.startswith(APPLY)]
    return " ".join(title.split()), "\n".join(line if _FIELD.match(line) else _wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _message(title: str, evidence: str) -> str:
    """What git log shows: a title that is too long is cut in the subject, and stands in full below it."""
    if len(title) <= WIDTH:
        return f"{title}\n\n{evidence}\n"
    subject = textwrap.wrap(title, WIDTH - 4, break_on_hyphens=False)[0]
    return f"{subject} ...\n\n{_wrapped(title)}\n\n{evidence}\n"


def _literal(file: str) -> str:
    return f":(literal){file}"


def _commit(top: Path, patch: Path, branch: str, was: str, message: str, changed: Sequence[str]) -> None:
    """Commit the patch on a new branch; where that fails, all is as it was, the branch ``was`` again."""
    files = [*map(_literal, changed)]
    done(top, "switch", "--create", branch)
    with ExitStack() as undo:  # last in, first out
        undo.callback(done, top, "branch", "--quiet", "-D", branch)
        undo.callback(done, top, "checkout", "--quiet", was, "--")
        undo.callback(done, top, "restore", "--source=HEAD", "--staged", "--worktree", "--", *files)
        done(top, "apply", "--index", str(patch))
        done(top, "commit", "--quiet", "--cleanup=verbatim", "--message", message, "--", *files)
        undo.pop_all()

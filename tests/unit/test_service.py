"""A replay server in another place: the same answers, for whom it serves, whatever is sent to it, across a restart."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from pathlib import Path

import msgpack
import pytest
from replay_case import FakeCompiler, capture, programs, variant

from r3bench import store
from r3bench.cli import main
from r3bench.errors import BuildError, CaptureError, ServiceError
from r3bench.files import folder_of_this_process
from r3bench.model import Capture, Level, Outcome, Status, Variant
from r3bench.overrides import id_of, tolerance_path
from r3bench.server import ReplayServer
from r3bench.server.addresses import TOKEN, Address, parse
from r3bench.server.frames import GREETING_BYTES, MOST_BYTES, VERSION
from r3bench.server.remote import RemoteServer
from r3bench.server.service import Service
from r3bench.server.spool import Spool, parts
from r3bench.stats import Decision
from r3bench.testing import FakeDevice

SECRET = "0123456789abcdef"
CERTIFICATE = Path(__file__).with_name("localhost.pem")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(tmp_path_factory.mktemp("captures"))


@pytest.fixture(autouse=True)
def _of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the device's lock
    monkeypatch.setenv(TOKEN, SECRET)


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def here(compiler: FakeCompiler) -> Iterator[ReplayServer]:
    with ReplayServer(lambda: FakeDevice(programs()), compiler=compiler) as opened:
        yield opened


@pytest.fixture
def unix(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/r3.sock"


@contextmanager
def serving(server: ReplayServer, url: str, under_way: int = 0) -> Iterator[str]:
    """A service in a thread of its own; the address that clients use."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATE)
    bound: list[Address] = []
    loops: list[asyncio.AbstractEventLoop] = []
    listens = threading.Event()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        services.append(Service(server, Spool(Path(tempfile.gettempdir(), "spool")), parse(url), SECRET, under_way))
        await services[0].run(lambda at: (bound.append(at), listens.set()), tls if url.startswith("tls") else None)

    services: list[Service] = []
    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert listens.wait(60)
        yield str(bound[0])
    finally:
        loops[0].call_soon_threadsafe(services[0].stop)
        thread.join(60)


def outcome_of(server: RemoteServer, recorded: Capture, name: str = "add") -> Outcome:
    return server.submit(recorded, variant(name)).result(60)


# -- the same verbs -------------------------------------------------------------------------------------------------


def test_every_verb_gives_what_it_gives_here(here: ReplayServer, recorded: Capture, unix: str) -> None:
    with serving(here, unix), RemoteServer(unix) as there:
        assert (there.target, there.name, there.levels) == (here.target, here.name, here.levels)
        assert there.conditions() == here.conditions()
        assert there.profile(recorded).result(60) == here.profile(recorded).result(60)
        wrong = there.submit(recorded, variant("wrong"), 1, "none").result(60)
        assert wrong.verdict == here.submit(recorded, variant("wrong"), 1, "none").result(60).verdict
        assert wrong.verdict.differences[0].first == (3,)
        timed = outcome_of(there, recorded, "quick")
        assert timed.measurement == here.submit(recorded, variant("quick")).result(60).measurement
        checked = there.verify(recorded, variant("add"), Level.HELD_OUT, 1).result(60).verdict
        assert (checked.status, checked.level) == (Status.MATCH, Level.HELD_OUT)
        found = there.compare(recorded, 0, variant("add"), variant("quick")).result(60)
        assert found == here.compare(recorded, 0, variant("add"), variant("quick")).result(60)
        assert found.decision is Decision.FASTER
        assert there.compiled(recorded, variant("add"), there.target).result(60).binary.image == b"add#"


def test_errors_come_back_as_themselves(here: ReplayServer, recorded: Capture, unix: str) -> None:
    with serving(here, unix), RemoteServer(unix) as there:
        with pytest.raises(CaptureError, match="has no unit 7"):
            there.submit(recorded, Variant(), 7).result(60)
        with pytest.raises(BuildError, match="expected a declaration"):
            there.compiled(recorded, variant("syntax error"), there.target).result(60)
        assert outcome_of(there, recorded).verdict.status is Status.MATCH


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "tls://localhost:0"])
def test_over_tcp_a_capture_is_sent_once_with_its_tolerances(
    here: ReplayServer, recorded: Capture, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    own = capture(tmp_path / "own")
    tolerance_path(own.path).write_text("[x]\natol = 0.8\n")
    with serving(here, url) as bound, RemoteServer(bound) as there:
        assert outcome_of(there, own, "nearly").verdict.status is Status.MATCH
        assert outcome_of(there, recorded, "nearly").verdict.status is Status.MISMATCH
        kept = {id_of(own), id_of(recorded)}
        assert {path.name for path in (tmp_path / "spool").iterdir()} == kept
        with RemoteServer(bound) as another:
            assert outcome_of(another, own).verdict.status is Status.MATCH


def test_on_this_machine_a_capture_is_used_where_it_lies(
    here: ReplayServer, recorded: Capture, unix: str, tmp_path: Path
) -> None:
    with serving(here, unix), RemoteServer(unix) as there:
        assert outcome_of(there, recorded).verdict.status is Status.MATCH
    assert not (tmp_path / "spool").exists()


# -- a restart ------------------------------------------------------------------------------------------------------


def test_a_restart_loses_nothing(here: ReplayServer, recorded: Capture, compiler: FakeCompiler, unix: str) -> None:
    compiler.gate.clear()
    with serving(here, unix):
        there = RemoteServer(unix)
        futures = [there.submit(recorded, variant(f"add#{twin}")) for twin in range(20)]
        there.conditions()
        assert not any(future.done() for future in futures)
    compiler.gate.set()
    with closing(there), serving(here, unix):
        assert not wait(futures, 60).not_done
        assert {future.result().verdict.status for future in futures} == {Status.MATCH}
        assert len({future.result().variant for future in futures}) == 20


def test_a_server_that_stays_away_is_an_error(
    here: ReplayServer, recorded: Capture, compiler: FakeCompiler, unix: str
) -> None:
    compiler.gate.clear()
    with serving(here, unix):
        there = RemoteServer(unix, patience_s=0.2)
        future = there.submit(recorded, variant("add"))
        there.conditions()
    with closing(there), pytest.raises(ServiceError, match="no replay server answers"):
        future.result(60)


def test_all_requests_give_up_together_where_a_server_stays_away(
    here: ReplayServer, recorded: Capture, compiler: FakeCompiler, unix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.gate.clear()
    with serving(here, unix):
        there = RemoteServer(unix, patience_s=1.0)
        futures = [there.submit(recorded, variant(f"add#{number}")) for number in range(20)]
        there.conditions()
        tried, greet = list[None](), there._greet
        monkeypatch.setattr(there, "_greet", lambda: tried.append(None) or greet())
    with closing(there):
        for future in futures:
            with pytest.raises(ServiceError, match="no replay server answers"):
                future.result(60)
    assert len(tried) < 2 * len(futures)  # each for a second after the other would be four at least


def test_what_a_client_gave_up_is_not_replayed(
    here: ReplayServer, recorded: Capture, compiler: FakeCompiler, unix: str
) -> None:
    compiler.gate.clear()
    with serving(here, unix):
        with RemoteServer(unix) as there:
            future = there.submit(recorded, variant("add"))
            there.conditions()
        assert future.cancelled()
        compiler.gate.set()
        with RemoteServer(unix) as there:
            assert outcome_of(there, recorded, "quick").verdict.status is Status.MATCH


def test_no_more_are_under_way_than_the_server_takes(
    here: ReplayServer, recorded: Capture, compiler: FakeCompiler, unix: str
) -> None:
    compiler.gate.clear()
    with serving(here, unix, under_way=3), RemoteServer(unix) as there:
        futures = [there.submit(recorded, variant(f"add#{twin}")) for twin in range(12)]
        while len(compiler.requests) < 4:  # and the recorded kernel
            threading.Event().wait(0.01)
        assert len(compiler.requests) == 4
        compiler.gate.set()
        assert all(future.result(60).verdict.status is Status.MATCH for future in futures)


@pytest.mark.parametrize("said", [b"hello", msgpack.packb({"identity": 1}), msgpack.packb({"under_way": 1}), None])
def test_what_is_no_replay_server_is_told(tmp_path: Path, said: bytes | None) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if said is not None:
            writer.write(struct.pack("!I", len(said)) + said)
        writer.close()

    async def connect() -> None:
        async with await asyncio.start_unix_server(answer, str(tmp_path / "other.sock")):
            with pytest.raises(ServiceError, match=r"does not serve this client|no replay server answers"):
                await asyncio.to_thread(RemoteServer, f"unix:{tmp_path}/other.sock")

    asyncio.run(connect())


def test_too_long_a_request_is_an_error_of_its_own(here: ReplayServer, recorded: Capture, unix: str) -> None:
    with serving(here, unix), RemoteServer(unix) as there:
        with pytest.raises(ServiceError, match="too many for one message"):
            there.submit(recorded, Variant(image=bytes(MOST_BYTES))).result(60)
        assert outcome_of(there, recorded).verdict.status is Status.MATCH


# -- who is served, and with what -----------------------------------------------------------------------------------


def test_the_socket_is_its_owners(here: ReplayServer, unix: str, tmp_path: Path) -> None:
    with serving(here, unix):
        assert stat.S_IMODE(os.stat(tmp_path / "r3.sock").st_mode) == 0o600
        with pytest.raises(ServiceError, match="a replay server listens there"):
            asyncio.run(Service(here, Spool(tmp_path), parse(unix)).run(print))
        with RemoteServer(unix) as there:
            assert there.target == here.target
    assert not (tmp_path / "r3.sock").exists()


def test_a_socket_left_behind_is_taken_over_a_file_is_not(here: ReplayServer, unix: str, tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(tmp_path / "r3.sock"))
    with serving(here, unix), RemoteServer(unix) as there:
        assert there.target == here.target
    (tmp_path / "r3.sock").write_text("mine")
    with pytest.raises(ServiceError, match="nothing can listen"):
        asyncio.run(Service(here, Spool(tmp_path), parse(unix)).run(print))
    assert (tmp_path / "r3.sock").read_text() == "mine"


def test_a_wrong_token_or_version_is_refused(here: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(here, "tcp://127.0.0.1:0") as bound:
        monkeypatch.setenv(TOKEN, "another token of theirs")
        with pytest.raises(ServiceError, match="the token is not the server's"):
            RemoteServer(bound)
        monkeypatch.setenv(TOKEN, "short")
        with pytest.raises(ServiceError, match="at least 16 characters"):
            RemoteServer(bound)
        answer = told(bound, msgpack.packb({"r3bench": VERSION + 1, "token": SECRET}))
        assert "use the same r3bench" in answer["message"]


def told(url: str, body: bytes, length: int | None = None) -> dict[str, object]:
    """The server's first words to someone whose first message is this; none where it hangs up."""
    address = parse(url)
    with socket.create_connection((address.host, address.port), timeout=60) as channel:
        channel.sendall(struct.pack("!I", len(body) if length is None else length) + body)
        with channel.makefile("rb") as file:
            size = file.read(4)
            return msgpack.unpackb(file.read(struct.unpack("!I", size)[0])) if size else {}


class Planted:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


def test_nothing_that_is_sent_is_run_or_kept(
    here: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(here, "tcp://127.0.0.1:0") as bound:
        pickled = pickle.dumps(Planted())
        for body in (
            pickled,
            b"",
            b"\xc1",
            msgpack.packb([1]),
            msgpack.packb({"r3bench": msgpack.ExtType(5, pickled)}),
        ):
            assert told(bound, body).get("identity") is None
        assert told(bound, b"", length=GREETING_BYTES + 1) == {}
        with RemoteServer(bound) as there:
            assert there.target == here.target
    assert not (tmp_path / "unpickled").exists()
    assert "4097 bytes, of which 4096" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["store/../../x", "../x", "store//etc/x", "other/x", "/etc/x", "tolerance.toml/../../x", ""]
)
def test_a_file_of_a_capture_stays_in_the_spool(name: str, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with pytest.raises(CaptureError, match="no name of a capture's file"):
        spool.put("0" * 64, name, 0, b"data")
    assert [path.name for path in tmp_path.rglob("x")] == []


def test_another_capture_than_announced_or_too_much_is_refused(recorded: Capture, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", most_bytes=10)
    with pytest.raises(CaptureError, match="no more room"):
        spool.put("0" * 64, "store/zarr.json", 0, bytes(11))
    assert not spool.know("0" * 64, recorded.path)
    assert spool.know(id_of(recorded), recorded.path)


@pytest.mark.parametrize("above", ["file/x", "file", "/proc/nope"])
def test_a_socket_that_cannot_be_is_told(here: ReplayServer, tmp_path: Path, above: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ServiceError, match=r"nothing can listen at .*x\.sock \(.*\): name another"):
        asyncio.run(Service(here, Spool(tmp_path), parse(f"unix:{tmp_path / above}/x.sock")).run(print))


def test_a_folder_that_is_made_for_a_socket_is_its_owners(here: ReplayServer, tmp_path: Path) -> None:
    with serving(here, f"unix:{tmp_path}/new/r3.sock") as bound, RemoteServer(bound):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("timeout", ["-1", "0", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_a_usage_error(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "--timeout", timeout])
    assert f"'{timeout}' is no number of seconds" in capsys.readouterr().err


def test_tls_names_all_that_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(TOKEN)
    assert main(["serve", "tls://127.0.0.1:0"]) == 3
    assert re.search(f"--cert.*{TOKEN}", capsys.readouterr().err)


def test_what_a_killed_server_left_is_removed_what_another_has_is_not(tmp_path: Path) -> None:
    script = "import sys; from r3bench.files import folder_of_this_process as f\n"
    script += "with f('r3-test-') as folder: (folder / 'x').touch(); print(folder, flush=True); sys.stdin.read()"
    command, environment = [sys.executable, "-c", script], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as another:
        assert another.stdout is not None
        theirs = Path(another.stdout.readline().strip())
        with folder_of_this_process("r3-test-") as own:
            assert own.is_dir()
            assert (theirs / "x").exists()
        assert not own.exists()
        another.kill()
        another.wait(60)
        assert (theirs / "x").exists()
        with folder_of_this_process("r3-test-"):
            assert not theirs.exists()


def test_what_is_kept_stays_as_it_was_announced(recorded: Capture, tmp_path: Path) -> None:
    spool, identity = Spool(tmp_path / "spool"), id_of(recorded)
    for part in parts(recorded):
        spool.put(identity, *part)
    spool.keep(identity)
    for name in ("tolerance.toml", "store/zarr.json"):
        spool.put(identity, name, 0, b"[x]\nscale = 0.04\n")
    spool.keep(identity)
    assert id_of(spool.capture(identity)) == identity
    assert not tolerance_path(spool.capture(identity).path).exists()
    assert store.verify(spool.capture(identity).path).content_hash == recorded.content_hash


def test_what_arrives_damaged_is_not_kept_and_can_be_sent_again(recorded: Capture, tmp_path: Path) -> None:
    spool, identity = Spool(tmp_path / "spool"), id_of(recorded)
    for name, at, part in parts(recorded):
        spool.put(identity, name, at, part[:-1] + b"?" if "/after/x/c" in name else part)
    with pytest.raises(CaptureError, match="after/x"):
        spool.keep(identity)
    assert not spool.know(identity, "")
    for part in parts(recorded):
        spool.put(identity, *part)
    spool.keep(identity)
    assert spool.know(identity, "")


@pytest.mark.parametrize("url", ["unix", "tcp://127.0.0.1:0"])
def test_a_damaged_copy_is_found_where_the_server_has_a_sound_one(
    here: ReplayServer, recorded: Capture, unix: str, url: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.zarr"
    shutil.copytree(recorded.path, copy)
    chunk = next(path for path in copy.glob("units/0/after/x/c/**/*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with serving(here, unix if url == "unix" else url) as bound, RemoteServer(bound) as there:
        assert outcome_of(there, recorded).verdict.status is Status.MATCH
        with pytest.raises(CaptureError, match=r"copy.zarr.*after/x"):
            outcome_of(there, store.open_capture(copy))


@pytest.mark.parametrize("url", ["unix", "tcp://127.0.0.1:0"])
def test_a_warm_server_judges_by_the_tolerances_that_are(
    here: ReplayServer, unix: str, url: str, tmp_path: Path
) -> None:
    own = capture(tmp_path / "own")
    written = tolerance_path(own.path)
    with serving(here, unix if url == "unix" else url) as bound, RemoteServer(bound) as there:
        for text, status in (("[x]\natol = 0.8\n", Status.MATCH), ("[x]\natol = 0.7\n", Status.MISMATCH)) * 2:
            written.write_text(text)
            assert outcome_of(there, own, "nearly").verdict.status is status
        written.unlink()
        assert outcome_of(there, own, "nearly").verdict.status is Status.MISMATCH


@pytest.mark.parametrize(
    "url", ["", "unix:", "localhost:80", "http://x:1", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tls://x:1/y"]
)
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ServiceError, match="is no address"):
        parse(url)


def test_plain_tcp_stays_on_this_machine() -> None:
    with pytest.raises(ServiceError, match=r"use tls://node7:80"):
        parse("tcp://node7:80")

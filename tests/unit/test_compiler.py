"""The compiler's workers, which die and are replaced, and its cache."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from r3bench.errors import BuildError, BuildTimeout, DeviceUnavailable, WorkerLost
from r3bench.model import Configuration, Specialization, facts_of
from r3bench.space import OPTIONS, Options
from r3bench.toolchain import Compiler, cache, pool
from r3bench.toolchain.job import FrontendJob, Job, PrepareJob
from r3bench.toolchain.pool import Server, Worker
from tests.unit.build_case import CUDA, OF_ITS_OWN, SAXPY, SHARING, build, request

POW = 'extern "C" __global__ void k(float* y) { y[0] = __builtin_elementwise_pow(y[0], y[1]); }'
HEAVY = (
    'extern "C" __global__ void k(float* y) { float a[64];'
    + "".join(
        f'_Pragma("unroll") for (int i = 0; i < 400; i++) for (int q = 0; q < 16; q++) a[i * q & 63] += y[i + q * {j}];'
        for j in range(8)
    )
    + "for (int i = 0; i < 64; i++) y[i] = a[i]; }"
)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(2, cache=tmp_path_factory.mktemp("cache"), assemble=False) as made:
        yield made


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pids: list[int], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


# -- the workers ----------------------------------------------------------------------------------------------------


def test_an_abort_of_llvm_fails_its_request_alone(compiler: Compiler) -> None:
    good = [compiler.submit(request(SAXPY + f"// {n}")) for n in range(4)]
    bad = compiler.submit(request(POW, "k"))
    good += [compiler.submit(request(SAXPY + f"// {n}")) for n in range(4, 8)]
    with pytest.raises(BuildError, match=r"optimizing k ended the compiler: LLVM ERROR: Cannot select: .*fpow"):
        bad.result()
    assert len({future.result().module for future in good}) == 1


def test_a_build_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, end = list[int](), Worker.end
    monkeypatch.setattr(Worker, "end", lambda worker: ended.append(worker._pid) or end(worker))
    with Compiler(1, cache=tmp_path, timeout_s=1.0) as compiler:
        with pytest.raises(BuildTimeout, match="longer than 1 s"):
            build(compiler, HEAVY, "k")
        assert [alive(pid) for pid in ended] == [False]
        monkeypatch.setattr(compiler, "_timeout_s", 60.0)
        assert build(compiler).module


def test_a_source_that_took_too_long_twice_is_not_built_again_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[str](), Worker.ask

    def too_long(worker: Worker, *request: Any, what: str, **how: Any) -> Any:
        asked.append(what)
        if what.startswith("optimizing"):
            worker.end()
            raise BuildTimeout(f"{what} took longer")
        return ask(worker, *request, what=what, **how)

    monkeypatch.setattr(Worker, "ask", too_long)
    with Compiler(1, cache=tmp_path, assemble=False) as compiler:
        for pipeline in ("O1", "O2", "O3"):
            with pytest.raises(BuildTimeout, match="optimizing saxpy took longer"):
                build(compiler, configuration=Configuration(pipeline=pipeline))
    assert asked == ["compiling k.cu", "preparing saxpy", "optimizing saxpy", "optimizing saxpy"]


@pytest.mark.parametrize("request_bytes", [0, 1 << 24])
def test_what_a_worker_that_was_stopped_does_not_answer_is_nobodys_fault(
    compiler: Compiler, request_bytes: int
) -> None:
    worker = compiler._take((), "cuda")
    os.kill(worker._pid, signal.SIGSTOP)
    while not worker._stopped():
        time.sleep(0.001)
    with pytest.raises(WorkerLost, match="optimizing k did not end"):
        worker.ask(bytes(request_bytes), what="optimizing k", timeout_s=0.05)
    assert not alive(worker._pid)


def test_a_build_that_takes_too_much_memory_fails_alone(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path, memory_bytes=1 << 29) as compiler:
        text = '__device__ int big[1 << 28] = {1}; extern "C" __global__ void k(int* y) { y[0] = big[y[1]]; }'
        with pytest.raises(BuildError, match="optimizing k ended the compiler"):
            build(compiler, text, "k")
        assert build(compiler).module


@pytest.mark.parametrize("killed", ["workers", "server"])
def test_workers_killed_while_idle_are_replaced_however_many_they_are(tmp_path: Path, killed: str) -> None:
    with Compiler(1, cache=tmp_path, assemble=False) as compiler:
        idle = [compiler._take((), role) for role in ("frontend", "cuda") for _ in range(4)]
        for worker in idle:
            compiler._give(worker)
        pids = [worker._pid for worker in idle]
        for pid in pids if killed == "workers" else [compiler._server._process.pid]:
            os.kill(pid, signal.SIGKILL)
        assert gone(pids)
        assert build(compiler).module
        assert not any(worker in compiler._idle for worker in idle)


def test_the_workers_that_are_asked_most_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r3bench.toolchain.compiler._KEPT", 4)
    with Compiler(1, cache=tmp_path, assemble=False) as compiler:
        build(compiler)  # a front end, and one without options, which prepares for all others
        first = [worker.kind for worker in compiler._idle]
        for value in ("50", "100", "150", "200"):
            build(compiler, configuration=Configuration(options=(("unroll-threshold", value),)))
        kept = [worker.kind for worker in compiler._idle]
    assert first == [((), "frontend"), ((), "cuda")]
    assert kept == [((), "cuda"), *(((("unroll-threshold", value),), "cuda") for value in ("100", "150", "200"))]


def test_a_worker_that_has_done_its_share_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r3bench.toolchain.compiler._JOBS", 2)
    pids = set[int]()
    with Compiler(1, cache=tmp_path, assemble=False) as compiler:
        for after in ((), ("sroa",), ("new_gvn",), ("sinking",)):
            build(compiler, configuration=Configuration(after=after))
            pids |= {worker._pid for worker in compiler._idle if worker.kind == ((), "cuda")}
            assert max(worker.asked for worker in compiler._idle) < 2
    assert len(pids) == 2, "the first prepared and built, the second built twice, the third waits"


def test_a_server_killed_before_it_says_who_it_is_is_replaced(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        os.kill(compiler._server._process.pid, signal.SIGKILL)
        assert build(compiler).module


def test_a_server_that_stands_still_is_ended_and_replaced(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        assert compiler.host
        server = compiler._server
        server._control.settimeout(0.1)
        os.kill(server._process.pid, signal.SIGSTOP)
        assert build(compiler).module
        assert gone([server._process.pid])


@pytest.mark.parametrize(
    ("boot", "said"),
    [
        ("raise SystemExit('no LLVM here')", "the compile server cannot start: no LLVM here"),
        ("import os; os.kill(os.getpid(), 9)", "the compile server was ended each of 10 times"),
    ],
)
def test_a_server_that_cannot_start_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str, said: str
) -> None:
    monkeypatch.setattr(pool, "_BOOT", boot)
    with Compiler(1, cache=tmp_path) as compiler:
        for _ in range(2):
            with pytest.raises(DeviceUnavailable, match=said):
                build(compiler)


def test_builds_are_cancelled_where_the_compiler_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, fork = threading.Event(), Server.fork
    monkeypatch.setattr(Server, "fork", lambda *what: begun.set() or fork(*what))
    with Compiler(1, cache=tmp_path) as compiler:
        running, waiting = compiler.submit(request(HEAVY, "k")), compiler.submit(request())
        assert begun.wait(60)
    assert isinstance(running.exception(), CancelledError)
    assert waiting.cancelled()


def test_a_worker_that_fails_in_itself_ends_alone(compiler: Compiler) -> None:
    other, worker = (compiler._take((), "hip") for _ in range(2))
    with pytest.raises(BuildError, match=r"optimizing k ended the compiler: .*UnpicklingError"):
        worker.ask(b"nonsense", what="optimizing k", timeout_s=60)
    assert not gone([other._pid], within_s=0)
    compiler._give(other)


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folders() -> list[Path]:
        return list(tmp_path.glob("r3-compiler-*"))

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with (
        Compiler(1, cache=tmp_path / "cache", assemble=False) as compiler,
        Compiler(1, cache=tmp_path / "cache") as other,
    ):
        build(compiler)
        build(other, OF_ITS_OWN)
        left, workers = folders(), children(compiler._server._process.pid)
        os.kill(compiler._server._process.pid, signal.SIGKILL)
        assert gone(workers)
        build(compiler, SAXPY + "//")
        assert len(set(left) & set(folders())) == 1
        assert len(folders()) == len(left) == 2
    assert folders() == []


def test_close_ends_every_process(tmp_path: Path) -> None:
    before = set(children(os.getpid()))
    with Compiler(2, cache=tmp_path) as compiler:
        build(compiler)
        mine = [pid for pid in children(os.getpid()) if pid not in before]
        everyone = mine + [worker for pid in mine for worker in children(pid)]
        assert len(everyone) >= 2
    assert gone(everyone)
    compiler.close()


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.unit.test_compiler import Compiler, build, children, request, HEAVY
compiler = Compiler(2, cache=Path({str(tmp_path)!r}))
build(compiler)
compiler.submit(request(HEAVY, "k"))
time.sleep(0.5)
(server,) = children(os.getpid())
print([server, *children(server)], flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = json.loads(parent.stdout.readline())
        parent.kill()
    assert len(pids) >= 2
    assert gone(pids)


# -- the cache ------------------------------------------------------------------------------------------------------


def test_the_same_request_is_answered_from_memory(compiler: Compiler) -> None:
    first, second = build(compiler), build(compiler)
    assert [stage for stage, _ in second.stages] == ["cache"]
    assert (first.binary, first.module) == (second.binary, second.module)


def test_one_front_end_call_serves_every_configuration(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, ask = list[type](), compiler._ask
    monkeypatch.setattr(compiler, "_ask", lambda job, *rest: jobs.append(type(job)) or ask(job, *rest))
    text = SAXPY + "// another source"
    build(compiler, text)
    build(compiler, text, configuration=Configuration(pipeline="O2"))
    assert jobs == [FrontendJob, PrepareJob, Job, Job]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_passes_begin_where_a_source_was_prepared_before_with_the_same_facts(
    compiler: Compiler, tmp_path: Path, device: str
) -> None:  # fmt: skip
    text, target = SHARING + "// prepared once", compiler.host if device == "cpu" else CUDA
    build(compiler, text, "k", target=target)
    bounded = Configuration(pipeline="O2", bound_threads="max" if device == "cuda" else "none")
    again = build(compiler, text, "k", target=target, configuration=bounded)
    assert not {"specialize", "lower"} & dict(again.stages).keys()
    special = Configuration(pipeline="O2", specialize=Specialization(block=True))
    assert "specialize" in dict(build(compiler, text, "k", target=target, configuration=special).stages)
    with Compiler(workers=1, cache=tmp_path, assemble=False) as other:
        alone = build(other, text, "k", target=target, configuration=bounded)
    assert "specialize" in dict(alone.stages)
    assert (alone.binary, alone.globals) == (again.binary, again.globals)
    assert alone.globals


LOOPS = """extern "C" __global__ void k(double* y, const double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0;
    #pragma unroll 4
    for (int j = 0; j < 12; j++) sum += j & 1 ? x[i * 12 + j] : x[(i + j) % n] * 2;
    for (int j = 0; j < n; j++) sum = x[j] > sum ? x[j] : sum - 1;
    y[2 * i] = sum; y[2 * i + 1] = sum + 1;
}"""


def test_lowering_is_shared_by_all_options(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = list[tuple[PrepareJob, Options]](), compiler._ask

    def noted(job: FrontendJob | PrepareJob | Job, options: Options, *rest: Any) -> cache.Entry:
        asked.extend([(job, options)] if isinstance(job, PrepareJob) else [])
        return ask(job, options, *rest)

    monkeypatch.setattr(compiler, "_ask", noted)
    for values in OPTIONS["cpu"].values():
        for options in values.values():
            build(compiler, LOOPS, "k", compiler.host, Configuration(options=options))
    assert [options for _, options in asked] == [()]


def test_equal_optimized_modules_share_their_code(compiler: Compiler) -> None:
    first = build(compiler)
    renamed = build(
        compiler,
        SAXPY.replace("int i =", "int index =")
        .replace("(i ", "(index ")
        .replace("[i]", "[index]")
        .replace("p, i)", "p, index)", 1)
        .replace("weight(p, i);", "weight(p, index);"),
    )
    assert renamed.module == first.module
    assert renamed.binary == first.binary
    assert "emit" not in dict(renamed.stages)


def test_sources_that_share_their_code_keep_their_own_parameters(compiler: Compiler) -> None:
    plain = build(compiler, target=compiler.host)
    longer = build(compiler, SAXPY.replace("P p)", "P p, int more)"), target=compiler.host)
    assert longer.module == plain.module  # nobody reads it
    assert longer.binary.image == plain.binary.image
    first, second = (facts_of(built.binary.facts) for built in (plain, longer))
    assert (first["parameters"], second["parameters"]) == (5, 6)
    assert second["argument_bytes"] == first["argument_bytes"] + 4
    assert second["code_bytes"] == first["code_bytes"]


def test_results_are_found_on_disk_by_the_next_compiler(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        first = build(compiler)
    with Compiler(1, cache=tmp_path) as compiler:
        second = build(compiler)
    assert [stage for stage, _ in second.stages] == ["cache"]
    assert second.binary == first.binary


@pytest.mark.parametrize("damage", [lambda data: data[:50], lambda data: data[:-1] + b"!", lambda data: b""])
def test_damaged_entries_are_built_anew_and_rewritten(tmp_path: Path, damage: object) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        first = build(compiler)
    files = {path: path.read_bytes() for path in tmp_path.glob("??/*")}
    for path, data in files.items():
        path.write_bytes(damage(data))  # type: ignore[operator]
    with Compiler(1, cache=tmp_path) as compiler:
        assert build(compiler).binary == first.binary
    assert {path.read_bytes()[64:] != b"" for path in files} == {True}


def test_code_is_written_once_however_many_builds_come_to_it(tmp_path: Path) -> None:
    with Compiler(1, cache=tmp_path) as compiler:
        image = build(compiler).binary.image
        assert build(compiler, SAXPY + "// another text").binary.image == image
    assert sum(image in path.read_bytes() for path in tmp_path.glob("??/*")) == 1


def test_memory_holds_so_many_bytes_of_results_and_counts_what_is_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MEMORY_BYTES", 1000)
    kept = cache.Cache(None)
    for number in range(100):
        kept.put("always", ({"number": number}, bytes(300)))
    assert kept.get("always") == ({"number": 99}, bytes(300))
    kept.put("facts", ({"many": "x" * 500}, b""))
    assert kept.get("always") is not None
    kept.put("more", ({}, bytes(300)))
    assert kept.get("facts") is None
    assert kept.get("always") is not None


def test_results_that_a_slow_disk_has_no_room_for_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MOST_WAITING", 2)
    kept, goes_on = cache.Cache(tmp_path), threading.Event()
    kept._writer.submit(goes_on.wait)
    for number in range(5):
        kept.put(f"{number:064}", ({}, b"result"))
    goes_on.set()
    kept.close()
    assert len(list(tmp_path.glob("??/*"))) == 2


def test_a_cache_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Compiler(1, cache=tmp_path / "file") as compiler:
        assert build(compiler).module


def test_what_a_full_disk_takes_in_part_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*what: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.Path, "replace", full)
    kept = cache.Cache(tmp_path)
    kept.put("0" * 64, ({}, b"result"))
    kept.close()
    assert not list(tmp_path.glob("*/*"))


def test_files_that_go_while_a_cache_is_closed_are_nobodys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache.Cache(tmp_path)
    kept.put("0" * 64, ({}, bytes(100)))
    kept._writer.shutdown()
    (tmp_path / "00" / "gone").symlink_to("nothing")
    monkeypatch.setattr(cache, "_DISK_BYTES", 10)
    kept.close()
    assert not list(tmp_path.glob("00/0*"))

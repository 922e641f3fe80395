"""Programs built by plain nvcc -O3, and Python scripts, under the recorder on a real GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from r3bench import report, store
from r3bench.cli import main
from r3bench.devices import Device, open_device
from r3bench.devices.cuda import nvml
from r3bench.model import LaunchRule
from r3bench.record import application, dump
from r3bench.record.images import find_nvcc
from r3bench.record.verification import verify
from r3bench.report import applied
from r3bench.toolchain import Compiler
from tests.recorder.tuned_report import tuned_report

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not here"),
]
PROGRAMS = Path(__file__).parent / "programs"
Program = Callable[..., Path]


@pytest.fixture(autouse=True)
def _with_the_fake_driver() -> None:
    """Not here: these programs run on the real one."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Builds a program once for each set of flags."""
    folder, built = tmp_path_factory.mktemp("programs"), dict[tuple[str, ...], Path]()

    def build(*sources: str, flags: tuple[str, ...] = ()) -> Path:
        if (*sources, *flags) not in built:
            target = folder / f"{Path(sources[0]).stem}{len(built)}"
            command = [str(find_nvcc()), "-O3", "-arch=native", *flags, *(str(PROGRAMS / name) for name in sources)]
            subprocess.run([*command, "-o", str(target)], check=True, timeout=120)
            built[*sources, *flags] = target
        return built[*sources, *flags]

    return build


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with closing(open_device("cuda")) as opened:
        yield opened


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as opened:
        yield opened


def plain_output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout


@pytest.fixture
def recorded(
    tmp_path: Path, device: Device, compiler: Compiler, capfd: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, int]]:
    """Records a program, which must print what it prints alone; its kernels, each verified, with their units."""

    def record(command: list[str], *options: str) -> dict[str, int]:
        expected = plain_output(command)
        assert main(["record", "--out", str(tmp_path / "captures"), *options, "--", *command]) == 0
        said = capfd.readouterr().out
        assert said.startswith(expected)
        assert "not recorded" not in said
        found = {}
        for path in sorted((tmp_path / "captures").glob("*.zarr")):
            capture = store.open_capture(path)
            for unit in verify(capture, device, compiler, 10):
                assert (unit.exact, unit.failure, unit.vacuous) == (10, "", False), f"{path.name} {unit.noise}"
            found[capture.demangled.partition("<")[0]] = len(capture.units)
        return found

    return record


WEATHER = {"tendency": 2, "advance": 2, "add_rows": 2}


@pytest.mark.parametrize("cudart", ["static", "shared"])
@pytest.mark.parametrize("memory", ["device", "managed", "async", "host"])
def test_templates_constants_structs_streams_and_pointers_in_buffers(
    cudart: str, memory: str, program: Program, recorded: Callable[..., dict[str, int]]
) -> None:
    app = program("weather.cu", flags=("-cudart", cudart))
    assert recorded([str(app), memory]) == WEATHER


@pytest.mark.parametrize(
    ("kind", "kernels"),
    [
        ("graph", {"add": 2}),
        ("nested", {"add": 2}),
        ("cooperative", {"twice": 1}),
        ("clusters", {"clustered": 1}),
        ("shared", {"shared_sum": 1}),
        ("vmm", {"add": 1}),
        ("registered", {"add": 2}),
    ],
)
def test_ways_to_launch_and_to_get_memory(
    kind: str, kernels: dict[str, int], program: Program, recorded: Callable[..., dict[str, int]]
) -> None:
    assert recorded([str(program("kinds.cu", flags=("-lcuda",))), kind]) == kernels


def test_a_graph_that_allocates_is_declared(program: Program, tmp_path: Path) -> None:
    command = [str(program("kinds.cu", flags=("-lcuda",))), "graph-memory"]
    expected = plain_output(command).encode()
    assert application.run(command, application.Plan(folder=tmp_path), keep_output=True) == (0, expected)
    ((kernel,),) = (process["kernels"] for process in dump.coverage(tmp_path))
    assert (kernel["launches"], kernel["recorded"]) == (3, 1)
    assert kernel["reasons"] == {"its graph allocates memory": 2}


def test_what_a_conditional_node_launches_is_declared(program: Program, tmp_path: Path) -> None:
    command = [str(program("kinds.cu", flags=("-lcuda",))), "conditional"]
    expected = plain_output(command).encode()
    assert application.run(command, application.Plan(folder=tmp_path), keep_output=True) == (0, expected)
    ((kernel,),) = (process["kernels"] for process in dump.coverage(tmp_path))
    assert (kernel["launches"], kernel["conditional"]) == (0, 2)


def test_a_texture_in_a_buffer_is_declared(program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [str(program("kinds.cu", flags=("-lcuda",))), "texture"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 1
    said = capfd.readouterr().out
    assert said.startswith(plain_output(command))
    assert said.endswith("1 not recorded: its code uses textures or surfaces\n")


def test_several_gpus(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nvml.opened() as library:
        count = len(library.names())
    if count < 2:
        pytest.skip("needs two GPUs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    plan = application.Plan(folder=tmp_path, max_per_kernel=4)
    assert application.run([str(program("kinds.cu", flags=("-lcuda",))), "devices"], plan, keep_output=True)[0] == 0
    assert [launched.facts["device"] for launched in dump.launches(tmp_path)] == [0, 1, 0, 1]


def test_several_files_linked_on_the_device(program: Program, recorded: Callable[..., dict[str, int]]) -> None:
    assert recorded([str(program("parts/main.cu", "parts/bent.cu", flags=("-rdc=true",)))]) == {"bend": 2}


@pytest.mark.parametrize(
    ("source", "kernels"),
    [
        ("solver.cu", {"fill_matrix": 1, "multiply": 2, "dot": 2, "add_scaled": 2, "scale_and_add": 2}),
        ("lookups.cu", {"make_energies": 2, "look_up": 2}),
    ],
)
def test_mini_apps(
    source: str, kernels: dict[str, int], program: Program, recorded: Callable[..., dict[str, int]]
) -> None:
    assert recorded([str(program(source))]) == kernels


def test_kernels_by_their_time(program: Program, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--list", "--", str(program("many.cu")), "300"]) == 0
    row = capfd.readouterr().out.splitlines()[-1].split()
    assert row[:2] == ["turn", "1300"]
    assert float(row[2]) > 0.3


def test_the_driver_api_alone(program: Program, tmp_path: Path, recorded: Callable[..., dict[str, int]]) -> None:
    image = program("many.cu", flags=("-cubin",))
    assert recorded([str(program("driver.cpp", flags=("-lcuda",))), str(image)]) == {"turn": 2}


def test_a_child_and_a_program_that_a_child_becomes(program: Program, tmp_path: Path) -> None:
    plan = application.Plan(folder=tmp_path, max_per_kernel=1)
    status, _ = application.run(
        [str(program("driver.cpp", flags=("-lcuda",))), "fork", str(program("many.cu")), "5"], plan
    )
    assert status == 0
    assert {launched.kernel for launched in dump.launches(tmp_path)} == {"_Z4turnPfi"}


def test_one_rank_of_four(program: Program, tmp_path: Path) -> None:
    app = program("weather.cu", flags=("-cudart", "static"))
    plan = application.Plan(folder=tmp_path, max_per_kernel=1, ranks=(2,))
    script = f"for rank in 0 1 2 3; do OMPI_COMM_WORLD_RANK=$rank {app} & done; wait"
    assert application.run(["sh", "-c", script], plan, keep_output=True)[0] == 0
    assert len({launched.path.parent for launched in dump.launches(tmp_path)}) == 1


@pytest.mark.parametrize(
    ("script", "package", "kernels"),
    [("raw.py", "cupy", "axpy|powers"), ("layers.py", "torch", "elementwise"), ("tiles.py", "triton", "scaled_add")],
)
def test_python_applications(script: str, package: str, kernels: str, recorded: Callable[..., dict[str, int]]) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not here")
    assert recorded([sys.executable, str(PROGRAMS / script)], "--kernel", kernels, "--max-per-kernel", "1")


# -- tuned kernels in the unmodified program --


def test_the_unmodified_program_with_a_tuned_kernel(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [str(program("steps.cu", flags=("-ldl",)))]
    expected = plain_output(command)
    source = ("--source", str(PROGRAMS / "step.cuh"))
    assert main(["record", "--out", str(tmp_path / "captures"), *source, "--", *command]) == 0
    (capture,) = (tmp_path / "captures").iterdir()
    texts = ("state[i] += dt * (right - left);", "state[i] = fma(dt, right - left, state[i]);")
    place = tuned_report(tmp_path / "reports", capture, LaunchRule(block=(64, 1, 1)), *texts)
    capfd.readouterr()
    assert main(["run", "--with", str(place), "--region", "steps", "--runs", "2", "--", *command]) == 0
    said = capfd.readouterr().out
    assert said.startswith(expected)
    assert "\n20 launches of a run used a tuned kernel\nthe application's output is the same in every run\n" in said
    rows = {row[0]: row for row in report.load(place / "report.json")["in_application"]["rows"]}
    assert set(rows) == {"whole", "in steps", "step"}
    for arm in (1, 2):
        whole_ms, steps_ms, step_ms = (float(rows[name][arm]) for name in ("whole", "in steps", "step"))
        assert (steps_ms >= 50, whole_ms - steps_ms >= 50, 0 < step_ms < steps_ms) == (True, True, True)
    for name in ("report.md", "report.html"):
        assert applied.TITLE in (place / name).read_text()

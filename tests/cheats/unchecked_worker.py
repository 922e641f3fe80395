"""The CUDA device's worker without one of its checks, which :data:`WITHOUT` names in the environment."""

from __future__ import annotations

import os

WITHOUT = "R3BENCH_TESTS_WITHOUT"


def main() -> None:
    from r3bench.devices.cuda import worker
    from r3bench.devices.cuda.service import Service
    from r3bench.devices.cuda.space import Space

    checks = {
        # what a kernel that counts on it would like to find
        "poison in shared memory": (Service, "poison_shared_memory", lambda service: service.fill_shared_memory(0)),
        # what was open for one launch stays open
        "no memory but the launch's own": (Space, "only", lambda space, places, *_, **__: space.open(places)),
    }
    setattr(*checks[os.environ[WITHOUT]])
    worker.main()


if __name__ == "__main__":
    main()

"""What the tuner itself costs a trial: one ask and one tell of Optuna's TPE over the whole space of a kernel.

Thread time, the median of 30 trials of one study, for five studies; printed are the least and the median of the five.
The figure asked for: at most 4 ms.

    python -m tests.benchmarks.ask_tell
"""

from __future__ import annotations

import sys
import time
from statistics import median

from r3bench.evolve.tuning import Tuner
from r3bench.model import Target
from r3bench.space import Space
from tests.benchmarks.machine import describe, judge
from tests.search.fake_server import capture


def milliseconds(tuner: Tuner, trials: int = 30) -> float:
    """The median time of this thread per ask and tell."""
    times = []
    for trial in range(trials):
        begin = time.thread_time()
        ask = tuner.ask()
        assert ask is not None
        tuner.tell(ask, 1000.0 + trial % 7)
        times.append(time.thread_time() - begin)
    return 1e3 * median(times)


def main() -> bool:
    print(describe())
    subject = capture()
    space = Space.for_unit(subject, subject.units[0], Target(device="cpu", arch="fake"), ((64, 1, 1), (256, 1, 1)))
    studies = [milliseconds(Tuner(space, seed)) for seed in range(5)]
    print(f"{len(space.knobs)} knobs; medians of the studies: {', '.join(f'{ms:.2f}' for ms in studies)} ms")
    return judge("least ask + tell", min(studies), 4.0, "ms")


if __name__ == "__main__":
    sys.exit(not main())

"""Answers questions on standard input, until whoever asks is gone: the rules in a process of their own."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress

from r3bench.rules import nth_proposal

if __name__ == "__main__":
    with suppress(EOFError):
        while True:
            answer = nth_proposal(*pickle.load(sys.stdin.buffer))
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()

"""New texts or further trials: where the next evaluations of a kernel's search go, by what either gained of late."""

from __future__ import annotations

from math import inf, log
from typing import Literal

Kind = Literal["texts", "trials"]

_LEAST = 1 / 5  # of the evaluations go to either kind: what seems to gain may be noise
_FORGETS = 0.03  # of what was seen, with every evaluation of the same kind
_HOPED = 0.01, 8.0  # the gain an evaluation is expected to bring before anything is known, as from so many


class Returns:
    """The gain (as a logarithm) for each evaluation, of both kinds: that of the best time of any, by trials, and that
    of the best time under the default configuration, by texts. A better text shows there, for it has had no trials yet.

    Whatever makes a kernel faster, the search is then not far behind one that does nothing else: where only
    configurations gain, four fifths of all evaluations tune the best texts, and where only texts do, as many go to
    texts.
    """

    def __init__(self) -> None:
        self._best = {"texts": inf, "trials": inf}
        self._spent = {"texts": 0, "trials": 0}
        self._gained: dict[str, tuple[float, float]] = dict.fromkeys(self._spent, (_HOPED[0] * _HOPED[1], _HOPED[1]))

    def add(self, kind: Kind, evaluations: int, best_ns: float) -> None:
        """What so many evaluations came to: the best time among them (of texts, under the default configuration), or
        any that is no better than what is known."""
        gain = log(self._best[kind] / best_ns) if best_ns < self._best[kind] < inf else 0.0
        for gaining in (kind, "trials"):  # what texts have gained is not to be gained by trials
            self._best[gaining] = min(self._best[gaining], best_ns)
        self._spent[kind] += evaluations
        kept = (1 - _FORGETS) ** evaluations
        gains, of = self._gained[kind]
        self._gained[kind] = gains * kept + gain, of * kept + evaluations

    @property
    def next(self) -> Kind:
        """What is to be evaluated next."""
        least = _LEAST * sum(self._spent.values())
        for kind in ("trials", "texts"):
            if self._spent[kind] < least:
                return kind
        rates = {kind: gains / of for kind, (gains, of) in self._gained.items()}
        return "trials" if rates["trials"] > rates["texts"] else "texts"

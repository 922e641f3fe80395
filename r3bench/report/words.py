"""How a report calls things: times, speedups, decisions, devices, kernels' files. Pure text, escaped nowhere yet."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from r3bench.ledger import KernelResult, Promotion, SourceResult
from r3bench.stats import Comparison, Decision, claims
from r3bench.symbols import demangled, short_name

_NAMED = 5  # damaged lines


def file_name(kernel: str) -> str:
    """A name for the files of a kernel (``<application>/<symbol>``): its own, made safe and short; each has another."""
    symbol = kernel.split("/", 1)[-1]
    safe = re.sub(r"[^\w.-]", "_", demangled(symbol))[:80]
    if safe == symbol and safe != "report":
        return safe
    return f"{safe}-{hashlib.sha256(symbol.encode(errors='surrogatepass')).hexdigest()[:8]}"


def folder_name(application: str) -> str:
    """The folder of an application's reports."""
    return re.sub(r"[^\w.-]", "_", application)


def device_line(device: str, target: str) -> str:
    """Where times were taken, and what they say nothing about."""
    if device == "cpu":
        return f"Times are CPU times ({target}); they say nothing about a GPU."
    return f"Times were taken on {device} ({target})."


def places(kernels: Iterable[KernelResult]) -> list[str]:
    """Which kernels had contests on which device, a line for each; empty where one device timed all."""
    found: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        for arm in kernel.arms:
            if device := dict(arm.comparison.conditions).get("device"):
                found.setdefault(device, {})[short_name(kernel.kernel)] = None
    return [f"{device}: {', '.join(names)}" for device, names in sorted(found.items())] if len(found) > 1 else []


def held_out(launches: int) -> str:
    """How many recorded launches no search has seen."""
    return counted(launches, "held-out launch", "es")


def matched(promotion: Promotion) -> str:
    """On how many of the launches that no search has seen a candidate was right."""
    if not promotion.units:
        return "no launch was held out"
    return f"{promotion.held_out} of {held_out(promotion.units)} matched"


def counted(number: int, what: str, many: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else many}"


def duration(ns: float | None) -> str:
    if ns is None:
        return "-"
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if ns < limit:
            return f"{ns * 1e3 / limit:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def baseline_time(result: KernelResult) -> str:
    """The time of a launch before anything was changed: of a contest, else what ranked beside all that was built."""
    return f"{'ranked ' if result.baseline_ns and not in_contest(result) else ''}{duration(result.baseline_ns)}"


def in_contest(result: KernelResult) -> bool:
    """Whether the baseline's time is that of a contest."""
    return result.contested_ns is not None


def words(comparison: Comparison, ratio: str = "") -> str:
    """A comparison in one line: decision, speedup (or ``ratio``), interval, confidence, smallest effect."""
    if comparison.speedup is None or comparison.decision is Decision.REFUSED:
        return f"{comparison.decision.value}: the {comparison.refused} gave {comparison.verdict.status.value}"
    if comparison.decision is Decision.IDENTICAL:
        return "identical machine code and launch, nothing was timed"
    floor = comparison.noise_floor
    control = f"; two binaries of equal work seem {floor:.1%} apart" if floor is not None else ""
    alarms = dict(comparison.conditions).get("false_alarms") if claims(comparison) else None
    rate = f"; false alarms of this machine: {alarms}" if alarms else ""
    decided, said = comparison.decision.value, ratio or speedup(comparison)
    gate = f"{100 * comparison.gate:.3g}%"
    seen = (
        f"; the gate is {gate}, the smallest effect that could have been seen {100 * comparison.smallest_effect:.2g}%"
    )
    return (
        f"{said if decided in said else f'{decided}, {said}'} at {comparison.confidence:.2%} confidence from "
        f"{comparison.blocks} blocks{'' if claims(comparison) else seen}{control}{rate}"
    )


def speedup(comparison: Comparison | None, to: str = " to ") -> str:
    """A speedup with its interval, whose bounds ``to`` stands between."""
    if comparison is None:
        return "-"
    if comparison.speedup is None:
        return "refused"
    if comparison.decision is Decision.UNSTABLE:
        return "unstable"
    timed = comparison.low is not None and comparison.high is not None and comparison.decision is not Decision.IDENTICAL
    if not timed:
        return f"{comparison.speedup:.2f}x"
    low, high = comparison.low or 0.0, comparison.high or 0.0
    digits = 3 if high - low < 0.02 else 2  # a narrow interval is not to look like a point
    return f"{comparison.speedup:.{digits}f}x ({low:.{digits}f}{to}{high:.{digits}f})"


def configured(result: KernelResult, to: str = " to ") -> str:
    """The speedup with configuration; of a search that was interrupted before any contest its best ranked time."""
    best_ns = _ranked_best(result) if result.status == "interrupted" and not result.arms else None
    return f"ranked {duration(best_ns)}" if best_ns else speedup(with_configuration(result), to)


def with_configuration(result: KernelResult) -> Comparison | None:
    return result.arm("patch and configuration") or result.arm("configuration")


def _ranked_best(result: KernelResult) -> float | None:
    refused = _refused(result)
    return min((s.best_ns for s in result.sources if s.best_ns and s.rule not in refused), default=None)


def claimed(result: KernelResult) -> float:
    """The largest speedup that was claimed; 0 where none was."""
    faster = [arm.comparison for arm in result.arms if arm.comparison.decision is Decision.FASTER]
    return max((comparison.speedup or 0.0 for comparison in faster), default=0.0)


def gain_from(result: KernelResult) -> str:
    """The parts of a winner's gain; empty where there is none, or it was not taken apart."""
    return ", ".join(f"{share.name} {share.factor:.2f}x" for share in result.split if share.factor is not None)


BUILDING = ("frontend", "specialize", "lower", "optimize", "emit", "assemble", "image", "cache")
DEVICE = ("load", "verify", "time")


def grouped(stages: Iterable[tuple[str, float]]) -> dict[str, list[tuple[str, float]]]:
    """Stages of evaluations by what they kept busy: building, the device, or nothing (waiting), in that order.

    Parts of a stage, which have a colon in their name, are left out."""
    groups: dict[str, list[tuple[str, float]]] = {"building": [], "device": [], "waiting": []}
    for name, seconds in stages:
        if ":" in name:
            continue
        group = "building" if name in BUILDING else "device" if name in DEVICE else "waiting"
        groups[group].append((name.removeprefix("queue "), seconds))
    return {name: held for name, held in groups.items() if held}


def _spent_on(stages: Iterable[tuple[str, float]]) -> str:
    return "; ".join(
        f"{group} {sum(seconds for _, seconds in found):.1f} s ({_listed(found)})"
        for group, found in grouped(stages).items()
    )


def _listed(stages: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages)


def course(result: KernelResult) -> list[str]:
    """How a search went, in sentences: what ended it, where the gain comes from, where the time and the money went."""
    spent = result.spent
    tokens = f"{spent.prompt_tokens + spent.answer_tokens} tokens, {spent.cached_tokens} of them from the prefix cache"
    models = f"{tokens}, {spent.dollars:.2f} dollars" if spent.prompt_tokens else "no model was asked"
    used_up = result.stopped.endswith("used up")  # of a budget: the usual end
    ended = "" if result.status in ("interrupted", "failed") else result.stopped  # these say themselves what ended them
    texts = f"{counted(result.steps, 'text')} proposed in {spent.seconds:.0f} s; {models}"
    said = [
        f"Search {result.search}: {'the text as it is was tuned' if result.search == 'bo' else texts}",
        f"It ended {'when' if used_up else 'early:'} {ended}" if ended else "",
        f"By ranked times, which claim nothing, the gain comes from: {gain_from(result)}" if gain_from(result) else "",
        f"Evaluations spent, summed over all: {_spent_on(result.stages)}" if result.stages else "",
    ]
    return [f"{sentence}." for sentence in said if sentence]


def result_word(result: KernelResult) -> str:
    """The outcome in a word or two; unstable where the best finalist's claim was not confirmed."""
    best = next((p.decision for p in result.promotions if p.decision is not None), None)
    if result.status != "not improved":
        return result.status
    return "unstable" if best is Decision.UNSTABLE else "no gain"


def source_name(result: KernelResult, rule: str) -> str:
    """A source as people call it: by its rule, or where the untouched text came from."""
    if rule != "recorded":
        return rule
    return "working tree" if result.baseline.startswith("working tree") else "recorded source"


def best_time(result: KernelResult, source: SourceResult) -> str:
    """The best ranking time of a text, or whose code it has, and whether promotion refused it."""
    same = f"same code as {source_name(result, source.same_as)}" if source.same_as is not None else ""
    return (same or duration(source.best_ns)) + ", refused" * (source.rule in _refused(result))


def _refused(result: KernelResult) -> set[str]:
    """The texts that failed verification on their way to promotion, or while they were timed there, and did not pass
    under another configuration."""
    passed = {p.rule for p in result.promotions if p.decision not in (None, Decision.REFUSED)}
    return {promotion.rule for promotion in result.promotions} - passed


def busy_line(kernels: Iterable[KernelResult]) -> str:
    """What disturbed the measurements; empty where nothing did."""
    found = [(kernel.kernel, dict(kernel.conditions)) for kernel in kernels]
    conditions = [each for _, each in found]
    moved = [f"the memory of {name} was relocated {each['relocated']}" for name, each in found if "relocated" in each]
    return "; ".join(filter(None, (disturbed(conditions), *moved)))


def disturbed(conditions: Sequence[Mapping[str, str]]) -> str:
    """What else ran on the device, by what it said; empty where nothing did."""
    return _busy_cores(conditions) or _busy_gpu(conditions)


def work_line(kernels: Sequence[KernelResult]) -> str:
    """How busy the device was while kernels were searched, and how many evaluations waited on average: by Little's law,
    the time that they waited in all by the time it went on. Empty where nothing was evaluated."""
    spent: defaultdict[str, float] = defaultdict(float)
    for name, took in (stage for kernel in kernels for stage in kernel.stages):
        spent[name] += took
    seconds = max((kernel.searched for kernel in kernels), default=0.0)
    if not seconds or "queue device" not in spent:
        return ""
    worked = sum(spent[stage] for stage in DEVICE) / seconds
    return (
        f"the device was at work {worked:.0%} of the search; on average {spent['queue build'] / seconds:.1f} "
        f"evaluations waited to be built and {spent['queue device'] / seconds:.1f} for the device"
    )


def _busy_gpu(found: Sequence[Mapping[str, str]]) -> str:
    others = max((int(each.get("other_processes", "0")) for each in found), default=0)
    slowed = sorted({each.get("throttle", "none") for each in found} - {"none"})
    told = [f"{others} other process{'es' * (others > 1)} on it"] if others else []
    told += [f"slowed down by {', '.join(slowed)}"] if slowed else []
    return f"the GPU was disturbed ({'; '.join(told)}): run again when it is not" if told else ""


def _busy_cores(found: Sequence[Mapping[str, str]]) -> str:
    """The smallest load that a search began with counts: each search is a load itself for the one after it."""
    cores = [(float(c["load"]), int(c.get("cores", c.get("threads", "0")))) for c in found if "load" in c]
    load, number = min(cores, default=(0.0, 0))
    if not 0 < number < load:
        return ""
    return (
        f"the machine was busy (load {load:.1f} on {number} core{'s' * (number > 1)}, r3bench's own included): "
        "intervals are wide, "
        "run again on a quiet machine"
    )


def where_line(document: Mapping[str, Any]) -> str:
    """Where a document's times were taken, and the machine as far as the conditions name it."""
    told = [form.format(document["conditions"][key]) for key, form in _TOLD.items() if key in document["conditions"]]
    machine = f" Machine: {', '.join(told)}." if told else ""
    return device_line(document["device"], document["target"]) + machine


def own_line(result: KernelResult, document: Mapping[str, Any]) -> str:
    """What was said of the machine while this kernel was searched, where that was not so for all; else empty."""
    own, every = dict(result.conditions), document["conditions"]
    told = [form.format(own[key]) for key, form in _TOLD.items() if key in own and own[key] != every.get(key)]
    return f"While it was searched: {', '.join(told)}." if told else ""


_TOLD = {
    "device": "{}",
    "processor": "{}",
    "cores": "{} cores",
    "driver": "driver {}",
    "cuda": "CUDA {}",
    "launch_floor_ns": "launch floor {} ns",
    "load": "load {}",
}


def marker(document: Mapping[str, Any]) -> str:
    """The comment by which a later report finds the one that it replaces."""
    return f"<!-- r3bench: {document['kind']} {folder_name(document['application'])} -->"


def warnings(document: Mapping[str, Any]) -> list[str]:
    """What to know of a search's texts and ledgers before its report is believed."""
    damage = damage_line(document)
    return [*document.get("mixed", ()), *document.get("moved_on", ()), *([damage] if damage else [])]


def damage_line(document: Mapping[str, Any]) -> str:
    """What was left out of the ledgers, and why; empty where nothing was."""
    count, named = document.get("damaged_ledger_lines", 0), document.get("damage", ())
    more = f"; and {count - _NAMED} more" if count > _NAMED else ""
    return f"{count} lines of the ledgers were left out: {'; '.join(named[:_NAMED])}{more}" if count else ""


def as_sentence(text: str) -> str:
    return f"{begun(text)}."


def begun(text: str) -> str:
    """Text with a capital where it begins with a word; a path, a kernel's name or a number stays as it is."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+[,:;]?( |$)", text) else text


def one_line(text: str) -> str:
    """Text that cannot end the comment it stands in."""
    return " ".join(no_control(text).split())


def no_control(text: str) -> str:
    """Text without control characters, those that turn its direction, and halves of characters."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", " ", text)

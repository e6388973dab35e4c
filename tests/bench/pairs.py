"""A row of python_costs.py: what the package does, beside the least that it could cost
(its floor) and beside what others have for it (its peer).

As comparison.h in C++: all are sampled in turns, in one run, so that they meet the same
machine, and only ratios of medians are trusted. No time makes anything fail.
"""

import json
import statistics
import time
import traceback
from dataclasses import dataclass, field
from typing import Callable, Optional

Sample = Callable[[], float]  # measures once: seconds


def said_by(child):
    """What a child process prints as JSON, at its end."""
    said, _ = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"a child ended with {child.returncode}")
    return json.loads(said)


class LeftOut(Exception):
    """Why a row cannot be measured here."""


@dataclass(frozen=True)
class Sides:
    measured: Sample
    floor: Optional[Sample] = None
    peer: Optional[Sample] = None

    def taken(self):
        named = {"measured": self.measured, "floor": self.floor, "peer": self.peer}
        return {name: sample for name, sample in named.items() if sample is not None}


@dataclass(frozen=True)
class Limit:
    """measured <= ratio * floor + slack_s."""

    ratio: float = 1.0
    slack_s: float = 0.0


@dataclass(frozen=True)
class Row:
    name: str  # as filters say it: "eager/softmax"
    what: str  # as the table says it
    prepare: Callable[[], Sides]  # not timed; may raise LeftOut
    floor: str = ""  # what the floor does; "" for none
    peer: str = ""
    limit: Optional[Limit] = None
    is_long: bool = False


@dataclass
class Finding:
    """Medians over the rounds, but for rows that were left out or failed."""

    row: Row
    seconds: dict = field(default_factory=dict)  # by side
    ratio: float = 0.0  # to the floor, of each round's own pair
    peer_ratio: float = 0.0
    of_limit: Optional[float] = None
    noise: float = 0.0  # interquartile range of the floor, as a part of its median
    left_out: Optional[str] = None
    error: Optional[str] = None

    def to_json(self):
        """The fields of the benchmarks in C++, and those of the peer."""
        limit = self.row.limit
        return {
            "name": self.row.name,
            "what": self.row.what,
            "floor_name": self.row.floor,
            "peer_name": self.row.peer,
            "measured_s": self.seconds.get("measured"),
            "floor_s": self.seconds.get("floor"),
            "peer_s": self.seconds.get("peer"),
            "ratio": self.ratio,
            "peer_ratio": self.peer_ratio,
            "limit_ratio": limit and limit.ratio,
            "limit_slack_s": limit and limit.slack_s,
            "within": None if self.of_limit is None else self.of_limit <= 1,
            "noise": self.noise,
            "left_out": self.left_out,
            "error": self.error,
        }


def compare(row, rounds):
    """Samples all sides `rounds` times in turns, after one turn that does not count,
    unless there is only one."""
    try:
        return _evaluated(row, _sampled_in_turns(row.prepare().taken(), rounds))
    except LeftOut as reason:
        return Finding(row, left_out=str(reason))
    except Exception as error:  # the other rows are measured all the same
        traceback.print_exc()
        said = str(error).strip().splitlines() or [""]
        return Finding(row, error=f"{type(error).__name__}: {said[-1]}")


def each(calls, call, settle=lambda: None):
    """Processor time a call, of `calls` of them, so that other programs do not count;
    settle() waits for what they have begun."""
    settle()
    began = time.process_time()
    for _ in range(calls):
        call()
    elapsed = time.process_time() - began
    settle()
    return elapsed / calls


def _sampled_in_turns(sides, rounds):
    names = list(sides)
    samples = {name: [] for name in names}
    for turn in range(rounds + 1 if rounds > 1 else 1):
        # Who goes first changes, so that none always finds another's warm caches.
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            samples[name].append(sides[name]())
    return {name: taken[-rounds:] for name, taken in samples.items()}


def _quantile(values, at):
    values = sorted(values)
    place = at * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def _evaluated(row, samples):
    finding = Finding(row, {name: statistics.median(s) for name, s in samples.items()})
    measured = samples["measured"]

    def ratio_to(name):
        pairs = zip(measured, samples.get(name, ()))
        return statistics.median([m / other for m, other in pairs] or [0.0])

    finding.ratio, finding.peer_ratio = ratio_to("floor"), ratio_to("peer")
    if row.limit is not None:
        floors = samples.get("floor", [0.0] * len(measured))
        finding.of_limit = statistics.median(
            m / (row.limit.ratio * floor + row.limit.slack_s)
            for m, floor in zip(measured, floors)
        )
    steady = samples.get("floor", measured)
    spread = _quantile(steady, 0.75) - _quantile(steady, 0.25)
    finding.noise = spread / statistics.median(steady)
    return finding


# ---- The table

_COLUMNS = "{:<48} {:>9} {:>9} {:>6} {:>13} {:>9} {:>6} {:>5} {}"


def table_head():
    return _COLUMNS.format(
        *("what", "measured", "floor", "ratio", "at most", "peer", "ratio", "noise"),
        "verdict",
    )


def table_line(finding):
    row, seconds = finding.row, finding.seconds
    if finding.error is not None:
        return f"{row.what:<48} failed: {finding.error}"
    if finding.left_out is not None:
        return f"{row.what:<48} left out: {finding.left_out}"
    has_floor, has_peer = "floor" in seconds, "peer" in seconds
    return _COLUMNS.format(
        row.what,
        _duration(seconds["measured"]),
        _duration(seconds["floor"]) if has_floor else "",
        f"{finding.ratio:.2f}" if has_floor else "",
        _limit_text(row.limit),
        _duration(seconds["peer"]) if has_peer else "",
        f"{finding.peer_ratio:.2f}" if has_peer else "",
        f"{finding.noise * 100:.0f} %",
        _verdict(finding.of_limit),
    ).rstrip()


def _verdict(of_limit):
    if of_limit is None:
        return ""
    return "within" if of_limit <= 1 else "OVER"


def _duration(seconds):
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.{0 if unit == 'ns' else 2}f} {unit}"
    return f"{seconds:.2f} s"


def _limit_text(limit):
    if limit is None:
        return ""
    parts = [] if limit.ratio == 1 else [f"{limit.ratio:g} x"]
    if limit.slack_s:
        parts.append(f"+ {_duration(limit.slack_s)}")
    return " ".join(parts) or "1 x"

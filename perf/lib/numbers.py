"""Ratios of paired measurements: the arithmetic behind every figure that is claimed.

Two servers are measured one after the other in a round. Their ratio within the round is what counts, since the machine
is the same for both; the median of the rounds' ratios is the figure, the smallest and the largest its spread.
"""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios with the smallest and the largest of them."""

    median: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, ours, theirs):
        """Of two columns, a value of each round. None where a round has no such pair, or the other side is 0."""
        pairs = [(our, their) for our, their in zip(ours, theirs) if our is not None and their]
        if not pairs:
            return None
        ratios = [our / their for our, their in pairs]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self):
        return f"{self.median:.2f} ({self.smallest:.2f} to {self.largest:.2f})"


def median(values):
    """The median of what was measured; None if nothing was."""
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


def median_round(values):
    """The index of the round in the middle, of an even number the lower one; None if nothing was measured."""
    measured = sorted((value, index) for index, value in enumerate(values) if value is not None)
    return measured[(len(measured) - 1) // 2][1] if measured else None


def verdict(value, at_most):
    """Whether a limit is held, in a word. The limit itself is held."""
    if value is None:
        return "not measured"
    return "held" if value <= at_most else "not held"


def seconds_text(seconds):
    """A duration for people: `95 s`, `12 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

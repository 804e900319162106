"""What changed beyond the noise, from paired measurements."""

import math
import statistics

# Of each interval. About 15 figures are compared at once, and equal binaries should show no change.
CONFIDENCE = 0.995


def interval(differences, confidence=CONFIDENCE):
    """Where the middle of these differences lies, by Wilcoxon's signed-rank test: some wild rounds do not widen it much, and nothing is
    assumed about the noise but that it is symmetric. Infinite if there are too few."""
    n = len(differences)
    # How many of the 2^n choices of signs give each sum of positive ranks, if there is no difference.
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for at, count in enumerate(ways):
            longer[at + rank] += count
        ways = longer
    allowed, below, outside = (1 - confidence) / 2 * 2**n, 0, -1
    for count in ways:
        below += count
        if below > allowed:
            break
        outside += 1
    if outside < 0:
        return -math.inf, math.inf
    means = sorted((a + b) / 2 for at, a in enumerate(differences) for b in differences[at:])
    return means[outside], means[-1 - outside]


class Change:
    """A figure of two programs over rounds, as the ratio of new to old."""

    def __init__(self, name, old, new, more_is_better=False):
        self.name, self.more_is_better = name, more_is_better
        self.old, self.new = statistics.median(old), statistics.median(new)
        logs = [math.log(n / o) for o, n in zip(old, new)]
        self.ratio = math.exp(statistics.median(logs))
        self.low, self.high = (math.exp(min(end, 700)) for end in interval(logs))

    def is_change(self, least):
        """Is it beyond the noise, and at least this share?"""
        return not self.low <= 1 <= self.high and abs(self.ratio - 1) >= least

    def is_worse(self, least):
        return self.is_change(least) and (self.ratio < 1) == self.more_is_better


class CountedChange(Change):
    """A figure that hardly varies: a few counts are enough, and `noise` is the share by which they may differ."""

    def __init__(self, name, old, new, noise):
        super().__init__(name, old, new)
        self.low, self.high = self.ratio * (1 - noise), self.ratio * (1 + noise)

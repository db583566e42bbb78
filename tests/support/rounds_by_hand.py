"""Rounds that a test starts and ends, for who collects what it decides until the next one."""


class RoundsByHand:
    """What a shard runner needs of a round committer, over a `DataDirectory`."""

    def __init__(self, directory):
        self.directory = directory
        self.gathering = []

    def before_next_round(self, gather):
        self.gathering.append(gather)

    with_next_round = before_next_round

    def hurry(self):
        """A test runs a round when it wants one."""

    def take(self):
        """What the next round writes, with what was collected for it."""
        gathering, self.gathering = self.gathering, []
        for gather in gathering:
            gather()
        return self.directory.take_round()

    def run(self):
        """One round, whole; how many partitions it wrote to."""
        taken = self.take()
        self.finish(taken)
        return len(taken)

    def finish(self, taken, outcomes=None):
        self.directory.complete_round(taken, outcomes or self.directory.engine.commit([write for _, write in taken]))

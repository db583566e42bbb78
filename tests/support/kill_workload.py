"""The workload of the kill matrix: fifty producers; most have a group of their own, with offsets in transactions."""

from exactlog.testing.history import Recorder
from exactlog.testing.history_format import PlaceOffset
from exactlog.testing.workload import GROUP, _Run
from exactlog.testing.workload_roles import Auditor, TransactionalWriter

WITHOUT_OFFSETS = 0.4


class Mover(TransactionalWriter):
    """A writer most of whose transactions say how far its group has come; when it begins anew it asks for that."""

    def __init__(self, name, recorder, *, seed, version, places, patience):
        super().__init__(name, recorder, seed=seed, version=version, places=places, patience=patience)
        self.group = f"group of {name}"
        self._reached = 0

    def init(self, transactional_id):
        has_id = yield from super().init(transactional_id)
        if has_id:
            yield from self.read_offsets(self.group, self._places, is_stable=True)
        return has_id

    def _write(self, transaction):
        if not (yield from super()._write(transaction)):
            return False
        if self.choose.random() < WITHOUT_OFFSETS:
            return True
        self._reached += 1
        where = self.choose.sample(self._places, 2)
        offsets = tuple(PlaceOffset(place.topic, place.partition, self._reached) for place in where)
        return (yield from self.send_offsets(self.group, offsets, transaction=transaction))


class _KillRun(_Run):
    """A run whose transactional writers are movers."""

    def __init__(self, workload, system, recorder):
        super().__init__(workload, system, recorder)
        self._movers = [
            Mover(
                f"t{number}",
                recorder,
                seed=workload.seed,
                version=system.transaction_version,
                places=self._source,
                patience=workload.patience,
            )
            for number in range(workload.transactional_writers)
        ]
        self._auditor = Auditor(
            "auditor",
            recorder,
            seed=workload.seed,
            places=[*self._source, *self._target],
            groups=[GROUP, *self.groups],
        )

    @property
    def groups(self):
        return [mover.group for mover in self._movers]

    def _workers(self):
        others = super()._workers()[len(self._movers) :]
        return [*(mover.rounds(self._workload.rounds) for mover in self._movers), *others]


def run(workload, system, path):
    """Runs it, and gives the groups whose offsets it has committed."""
    with Recorder(path) as recorder:
        work = _KillRun(workload, system, recorder)
        work.run()
        return [GROUP, *work.groups]

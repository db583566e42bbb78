"""Where a replicator has to move its pointer before it goes on: at purges with an expectation.

A purge leaves no head row that could tell how far its journal has come. Whoever replicates the actions before it once
more, after a crash, begins a journal anew out of its middle. A plain purge that comes behind makes that good, for it
takes whatever there is. One with an expectation does not: it looks for the life that it names, and that is over.

So such a purge is carried out only when the pointer has passed all earlier actions of its journal: they never come
again then. And if the pointer cannot pass them, because a record before them is parked, the purge and what follows of
its journal have to wait.
"""

from collections.abc import Iterable

from exactlog.core.journal.actions import ActionRecord, Mark, Purge


def is_on_terms(record: ActionRecord) -> bool:
    """Whether an action is a purge with an expectation."""
    return isinstance(record.action, Purge) and not record.action.expect.is_any


def cut_at_purges(records: Iterable[ActionRecord]) -> tuple[tuple[ActionRecord, ...], ...]:
    """The actions of a partition in stretches: the pointer is moved to before each before it is carried out.

    In a stretch a purge with an expectation is the first action of its journal. Most polls are one stretch.
    """
    stretches: list[list[ActionRecord]] = [[]]
    changed: set[str] = set()
    for record in records:
        if isinstance(record.action, Mark):
            continue
        if is_on_terms(record) and record.key.id in changed:
            stretches.append([])
            changed.clear()
        stretches[-1].append(record)
        changed.add(record.key.id)
    return tuple(tuple(stretch) for stretch in stretches if stretch)

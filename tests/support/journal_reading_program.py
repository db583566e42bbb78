"""A program that reads journals from beginning to end, again and again, until it is killed; it says what it was given.

python -m tests.support.journal_reading_program '{"log": ..., "store": ..., "topic": ..., "wanted": {ID: [1, LAST]}}'
"""

import asyncio
import json
import sys

from exactlog.journal import Journals, JournalSettings
from tests.support.memory_peak import peak_bytes

SMALL = "small"
"""The journal that is read first: what a program takes that has read something."""


async def main(order):
    settings = JournalSettings(head_cache=False, buffer_actions_max=50)
    async with Journals.open(order["log"], store=order["store"], settings=settings) as journals:
        await read(journals[order["topic"], SMALL], *order["wanted"].pop(SMALL))
        warm_bytes = peak_bytes()
        while True:
            for key_id, (first, last) in order["wanted"].items():
                await read(journals[order["topic"], key_id], first, last)
                paths = {path.name: int(counter.value) for path, counter in journals.metrics.reads.items()}
                tell(event="read", id=key_id, paths=paths, grown_bytes=peak_bytes() - warm_bytes)


async def read(journal, first, last):
    """Each event is to say its number, and to come once."""
    expected = first
    async for record in journal.read():
        if (record.seq_nr, record.event) != (expected, str(expected)):
            tell(event="wrong", id=journal.key.id, expected=expected, found=repr(record))
            sys.exit(1)
        expected += 1
    if expected != last + 1:
        tell(event="wrong", id=journal.key.id, expected=expected, found=None)
        sys.exit(1)


def tell(**what):
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

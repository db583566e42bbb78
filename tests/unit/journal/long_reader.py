"""Reads a whole journal in a process of its own, and tells how much memory that took: run by a test.

    python -m tests.unit.journal.long_reader LOG STORE TOPIC log|cache

Event n of journal "e" has to say "n". The last line is JSON: how many events there were, by which path they came, and
by how many bytes the process was larger at its largest than before it read.
"""

import asyncio
import gc
import json
import sys

from exactlog.journal import Journals, JournalSettings
from exactlog.journal.metrics import Spared
from tests.support.memory_peak import peak_bytes

ACTIONS_KEPT = 50
SETTINGS = {
    "log": JournalSettings(head_cache=False, buffer_actions_max=ACTIONS_KEPT),
    "cache": JournalSettings(buffer_actions_max=ACTIONS_KEPT),
}


async def main(log_url, store_url, topic, settings):
    async with Journals.open(log_url, store=store_url, settings=SETTINGS[settings]) as journals:
        journal = journals[topic, "e"]
        _ = await journals[f"{topic}-quiet", "nobody"].pointer()  # connected, everything is imported
        gc.collect()
        before, count = peak_bytes(), 0
        async for record in journal.read():
            count += 1
            if (record.seq_nr, record.event) != (count, str(count)):
                raise AssertionError(f"event {record.seq_nr} says {record.event} where {count} comes next")
        grown = peak_bytes() - before
        metrics = journals.metrics
        told = {
            "count": count,
            "paths": {path.value: reads.value for path, reads in metrics.reads.items() if reads.value},
            "log_reads": metrics.log_reads.value,
            "kept": metrics.spared[Spared.SECOND_READ].value,
            "grown_bytes": grown,
            "pointer": await journal.pointer(),
            "last": [found.seq_nr async for found in journal.read(max(1, count - 1))],
        }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

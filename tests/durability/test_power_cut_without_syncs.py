"""`interval` and `none` over a power cut: the last records may be missing, and the partition opens all the same.

What only a checkpoint can replace goes behind two of them (removed segments, expired versions): so these must not stand
on bytes that a power cut can take.
"""

from random import Random

import pytest

from exactlog.storage.settings import FlushMode
from tests.durability.test_audit_finds_damage import LIFE_CONFIG, SETTINGS, lived
from tests.support.partitions import DataDirectory, values_of

STEPS = ["append", "append", "append", "terms", "remove", "sweep", "publish", "restart", "vacuum"]
ARGUMENTS_MAX = {"append": 4, "terms": 4, "remove": 100}


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("part", range(4))
def test_whatever_was_done_before_the_partition_opens_and_can_be_read(flush_mode, part):
    for seed in range(part, 120, 4):
        chance = Random(seed)
        steps = chance.choices(STEPS, k=chance.randrange(5, 40))
        script = [(step, chance.randint(1, ARGUMENTS_MAX.get(step, 1))) for step in steps]
        life = lived(flush_mode, script, crash_at=chance.randrange(600))
        left = life.filesystem.after_power_cut(chance if seed % 3 else None)

        with DataDirectory(left, config=LIFE_CONFIG, flush_mode=flush_mode, leader_epoch=100, **SETTINGS) as disk:
            partition = disk.open()
            start = partition.log_start_offset
            found = values_of(partition, start)

        assert found == [b"%06d" % number for number in range(start, start + len(found))], seed

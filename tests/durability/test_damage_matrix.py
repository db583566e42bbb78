"""Every file of a partition, damaged in every way: the log is as a full replay gives it, or refused with a next step.

Known cases of other systems that stand in the matrix: half a commit that a crash left under its name (delta-rs #94), a
commit without bytes taken for an empty version (delta-rs opens it so), a damaged newest checkpoint that is picked all
the same (delta #7259) or keeps the table from opening (seed 000's own code), a gap in the commits that nobody notices
(delta #7052; seed 000's own code), a checkpoint at the very version that is asked for (delta-rs #1403).
"""

import logging

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.storage.settings import FlushMode
from tests.support.partitions import DELTA_LOG, DIRECTORY, DataDirectory, copy_of, replace_file, sequenced, state_of

CONFIG = TopicConfig(segment_bytes=420, index_interval_bytes=150)
SETTINGS = {"checkpoint_interval": 5, "versions_keep": 4, "pack_versions": 5}
COMMITS = 19


def written(flush_mode, *, seed=b""):
    with DataDirectory(config=CONFIG, flush_mode=flush_mode, **SETTINGS) as disk:
        partition = disk.make()
        for number in range(COMMITS):
            disk.commit(partition, sequenced(number % 2, number // 2, b"%s%06d" % (seed, number)))
            disk.publish(partition)
        return copy_of(disk.filesystem), state_of(partition)


LOGS = {flush_mode: written(flush_mode) for flush_mode in FlushMode}
OTHERS = {flush_mode: written(flush_mode, seed=b"other ")[0] for flush_mode in FlushMode}


def names(filesystem, directory, ending):
    return sorted(f"{directory}/{name}" for name in filesystem.list_names(directory) if name.endswith(ending))


def commits(filesystem):
    loose = names(filesystem, DELTA_LOG, ".json")
    return [path for path in loose if "checkpoint" not in path and "compacted" not in path]


TARGETS = {
    "newest checkpoint": lambda files: names(files, DELTA_LOG, "checkpoint.json")[-1:],
    "older checkpoint": lambda files: names(files, DELTA_LOG, "checkpoint.json")[:1],
    "all checkpoints": lambda files: names(files, DELTA_LOG, "checkpoint.json"),
    "first loose commit": lambda files: commits(files)[:1],
    "commit in the middle": lambda files: commits(files)[len(commits(files)) // 2 :][:1],
    "last commit": lambda files: commits(files)[-1:],
    "pack with version 0": lambda files: names(files, DELTA_LOG, "compacted.json")[:1],
    "newest pack": lambda files: names(files, DELTA_LOG, "compacted.json")[-1:],
    "first segment": lambda files: names(files, DIRECTORY, ".log")[:1],
    "segment in the middle": lambda files: names(files, DIRECTORY, ".log")[2:3],
    "active segment": lambda files: names(files, DIRECTORY, ".log")[-1:],
    "an index": lambda files: names(files, DIRECTORY, ".index")[:1],
    "all indexes": lambda files: names(files, DIRECTORY, "index"),
}
INDEX_OR_CHECKPOINT = ("checkpoint", "index")


def flipped(content, place):
    position = min(len(content) - 1, int(len(content) * place))
    return content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]


DAMAGES = {
    "missing": lambda content, other: None,
    "empty": lambda content, other: b"",
    "cut in half": lambda content, other: content[: len(content) // 2],
    "without its last byte": lambda content, other: content[:-1],
    "a bit at the start": lambda content, other: flipped(content, 0.0),
    "a bit in the first third": lambda content, other: flipped(content, 0.3),
    "a bit behind the middle": lambda content, other: flipped(content, 0.6),
    "a bit at the end": lambda content, other: flipped(content, 0.99),
    "garbage behind it": lambda content, other: content + b"\0garbage",
    "of another partition": lambda content, other: other,
    "zeros": lambda content, other: bytes(len(content)),
    "another JSON": lambda content, other: b'{"version":"one"}\n',
    "a JSON of the wrong shape": lambda content, other: b"[1,2,3]\n",
}


def damaged(flush_mode, target, damage):
    files, others = copy_of(LOGS[flush_mode][0]), OTHERS[flush_mode]
    paths = TARGETS[target](files)
    assert paths, "there must be something to damage"
    for path in paths:
        content = DAMAGES[damage](files.read_file(path), others.read_file(path))
        if content is None:
            files.remove(path)
        else:
            replace_file(files, path, content)
    return files


def check_refusal(error, target):
    """Checkpoints and indexes can be done without; of the rest an error says what, where and what to do."""
    assert not any(kind in target for kind in INDEX_OR_CHECKPOINT), f"something else gives the same: {error}"
    assert "orders" in str(error), "the partition"
    assert "version" in str(error)
    assert DIRECTORY in str(error), "where"
    assert error.hint


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_log_is_as_a_full_replay_gives_it_or_it_is_refused_with_a_next_step(flush_mode, target, damage, caplog):
    files = damaged(flush_mode, target, damage)
    whole = LOGS[flush_mode][1]
    caplog.set_level(logging.WARNING)
    with DataDirectory(files, config=CONFIG, flush_mode=flush_mode, **SETTINGS) as disk:
        try:
            found = state_of(disk.open())
        except DamageError as error:
            check_refusal(error, target)
            return
    if found == whole:
        return
    assert caplog.records, "what is dropped is said"
    assert found[3] <= whole[3]
    if flush_mode is FlushMode.COMMIT:
        # Bytes without a document were never acknowledged; a last document that is gone cannot be missed.
        assert (target, damage) == ("last commit", "missing")

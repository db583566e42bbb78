"""Every file of a partition, damaged in every way: the log is as a full replay gives it, or refused with a next step.

Known cases of other systems that stand in the matrix: half a commit that a crash left under its name (delta-rs #94), a
commit without bytes taken for an empty version (deltalake opens it so), a damaged newest checkpoint that is picked all
the same (delta #7259) or keeps the table from opening (seed 000's own code), a gap in the commits that nobody notices
(delta #7052) or only once it is replayed (seed 000's own code), a checkpoint at the very version that is asked for
(delta-rs #1403), a table without any checkpoint that does not open (DeltaLakeReader #41).
"""

import json
import re

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.settings import FlushMode
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    ORDERS,
    DataDirectory,
    copy_of,
    replace_file,
    sequenced,
    state_of,
    values_of,
)
from tests.unit.core.deltalog.histories import seal

CONFIG = TopicConfig(segment_bytes=420, index_interval_bytes=150)
SETTINGS = {"checkpoint_interval": 5}
LAYOUTS = {"packed": {"versions_keep": 4, "pack_versions": 5}, "loose": {}, "removed": {"versions_keep": 4}}
OTHERS = TopicPartition("others", 0)
OTHERS_DIRECTORY = DIRECTORY.replace(ORDERS.topic, OTHERS.topic)
COMMITS = 19
REMOVED_BELOW = 8


def settings_of(layout, flush_mode):
    return {"config": CONFIG, "flush_mode": flush_mode, **SETTINGS, **LAYOUTS[layout]}


class Written:
    """A partition as it was left, and others whose files have the same names: another topic's, another life of it."""

    def __init__(self, layout, flush_mode):
        self.settings = settings_of(layout, flush_mode)
        self.files, self.state, self.values = self._write(layout, ORDERS, b"%06d")
        self.others, _, _ = self._write(layout, OTHERS, b"%06d")
        self.another_life, _, _ = self._write(layout, ORDERS, b"another %06d")

    def _write(self, layout, key, value):
        with DataDirectory(**self.settings) as disk:
            partition = disk.make(key)
            for number in range(COMMITS):
                disk.commit(partition, sequenced(number % 2, number // 2, value % number))
                disk.publish(partition)
                if layout == "removed" and number == COMMITS // 2:
                    disk.move_log_start(partition, REMOVED_BELOW)
            values = values_of(partition, partition.log_start_offset)
            return copy_of(disk.filesystem), state_of(partition), values


LOGS = {(layout, flush_mode): Written(layout, flush_mode) for layout in LAYOUTS for flush_mode in FlushMode}


# --- what is damaged -----------------------------------------------------------------------------------------------


def names(files, directory, pattern):
    return sorted(f"{directory}/{name}" for name in files.list_names(directory) if re.fullmatch(pattern, name))


def checkpoints(files):
    return names(files, DELTA_LOG, r"\d+\.checkpoint\.json")


def commits(files):
    return names(files, DELTA_LOG, r"\d+\.json")


def packs(files):
    return names(files, DELTA_LOG, r".*\.compacted\.json")


def segments(files):
    return names(files, DIRECTORY, r"\d+\.log")


TARGETS = {
    "newest checkpoint": lambda files: checkpoints(files)[-1:],
    "older checkpoint": lambda files: checkpoints(files)[:1],
    "all checkpoints": checkpoints,
    "first commit with a file of its own": lambda files: commits(files)[:1],
    "commit in the middle": lambda files: commits(files)[len(commits(files)) // 2 :][:1],
    "commit behind the newest checkpoint": lambda files: commits(files)[-4:-3],
    "last commit but one": lambda files: commits(files)[-2:-1],
    "last commit": lambda files: commits(files)[-1:],
    "pack with version 0": lambda files: packs(files)[:1],
    "newest pack": lambda files: packs(files)[-1:],
    "all checkpoints and version 0": lambda files: checkpoints(files) + (packs(files) or commits(files))[:1],
    "first segment": lambda files: segments(files)[:1],
    "segment in the middle": lambda files: segments(files)[2:3],
    "last segment but one": lambda files: segments(files)[-2:-1],
    "active segment": lambda files: segments(files)[-1:],
    "an index": lambda files: names(files, DIRECTORY, r"\d+\.index")[:1],
    "a time index": lambda files: names(files, DIRECTORY, r"\d+\.timeindex")[:1],
    "all indexes": lambda files: names(files, DIRECTORY, r"\d+\.(time)?index"),
}

DISPENSABLE = ("newest checkpoint", "older checkpoint", "all checkpoints", "an index", "a time index", "all indexes")


# --- how -------------------------------------------------------------------------------------------------------------


def flipped(place):
    def flip(content):
        position = min(len(content) - 1, int(len(content) * place))
        return content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]

    return flip


def torn_at(place):
    """A sector that never reached the disk."""

    def tear(content):
        start = int(len(content) * place)
        return content[:start] + bytes(len(content[start : start + 64])) + content[start + 64 :]

    return tear


def edited(edit, *, sealed):
    """The first document of a file with one thing changed, with its own CRC or with the one that was right."""

    def apply(content):
        line, newline, rest = content.partition(b"\n")
        document = json.loads(line)
        before = json.dumps(document)
        edit(document)
        assert json.dumps(document) != before
        spelled = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + newline
        return (seal(document) if sealed else spelled) + rest

    return apply


def count_one_more(document):
    for key in ("end_offset", "next_offset"):
        if key in document:
            document[key] += 1


def spell_the_version_as_text(document):
    document["version"] = str(document["version"])


def make_an_object_of_a_list(document):
    document["operations" if "operations" in document else "segments"] = {}


def leave_a_key_out(document):
    del document["leader_epoch"]


def say_nothing(document):
    document["log_start_offset"] = None


def count_below_zero(document):
    document["last_stable_offset"] = -7


DAMAGES = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "a bit at the start": flipped(0.0),
    "a bit in the first third": flipped(0.3),
    "a bit behind the middle": flipped(0.6),
    "a bit at the end": flipped(0.99),
    "a sector at the start": torn_at(0.0),
    "a sector in the middle": torn_at(0.5),
    "garbage behind it": lambda content: content + b"\0garbage",
    "twice": lambda content: content + content,
    "zeros": lambda content: bytes(len(content)),
    "another JSON": lambda content: b'{"version":"one"}\n',
    "a JSON of the wrong shape": lambda content: b"[1,2,3]\n",
}
DAMAGES_OF_DOCUMENTS = {
    "a number changed": edited(count_one_more, sealed=False),
    "a text for a number": edited(spell_the_version_as_text, sealed=True),
    "an object for a list": edited(make_an_object_of_a_list, sealed=True),
    "a key left out": edited(leave_a_key_out, sealed=True),
    "null for a number": edited(say_nothing, sealed=True),
    "a number below zero": edited(count_below_zero, sealed=True),
}
SWAPS = {
    "of another partition": lambda written, path: written.others.read_file(path.replace(DIRECTORY, OTHERS_DIRECTORY)),
    "of another life of it": lambda written, path: written.another_life.read_file(path),
    "of another version": lambda written, path: written.files.read_file(neighbour_of(written.files, path)),
}


def neighbour_of(files, path):
    """A file of the same kind."""
    directory, _, name = path.rpartition("/")
    alike = names(files, directory, r"[\d-]+" + re.escape(name.lstrip("0123456789-")))
    return alike[alike.index(path) - 1]


def damaged(written, target, damage):
    """The partition with that done to it, and the paths of what was changed."""
    files = copy_of(written.files)
    changed = []
    for path in TARGETS[target](files):
        before = files.read_file(path)
        after = SWAPS[damage](written, path) if damage in SWAPS else (DAMAGES | DAMAGES_OF_DOCUMENTS)[damage](before)
        if after == before:
            continue
        changed.append(path)
        if after is None:
            files.remove(path)
        else:
            replace_file(files, path, after)
    return files, changed


# --- what comes of it ----------------------------------------------------------------------------------------------


def check_refusal(error, target, changed):
    """Checkpoints and indexes can be done without; of the rest an error says what, where and what to do."""
    message = str(error)
    assert target not in DISPENSABLE, message
    assert message.startswith("orders-0: ")
    assert re.search(r"version \d+", message)
    where = [DIRECTORY] if target == "all checkpoints and version 0" else changed
    assert any(path in message for path in where), f"{message}: none of {where}"
    assert error.hint


def check(written, target, damage, caplog):
    files, changed = damaged(written, target, damage)
    if not changed:
        return
    is_synced = written.settings["flush_mode"] is FlushMode.COMMIT
    with DataDirectory(files, **written.settings) as disk:
        try:
            partition = disk.open()
        except DamageError as error:
            check_refusal(error, target, changed)
            return
        found = state_of(partition)
        if not is_synced and damage not in SWAPS:
            values = values_of(partition, partition.log_start_offset)
            assert values == written.values[: len(values)], "nothing that was not written"
    if found == written.state:
        return
    assert "are dropped" in caplog.text or "are cut off" in caplog.text
    assert found[3] <= written.state[3]
    if is_synced:
        # Bytes without a document were never acknowledged; a last document that is gone cannot be missed.
        assert (target, damage) == ("last commit", "missing")


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize(
    ("layout", "target"),
    [
        (layout, target)
        for layout in LAYOUTS
        for target in TARGETS
        if TARGETS[target](LOGS[layout, FlushMode.COMMIT].files)
    ],
)
def test_the_log_is_as_a_full_replay_gives_it_or_it_is_refused_with_a_next_step(layout, target, flush_mode, caplog):
    written = LOGS[layout, flush_mode]
    assert TARGETS[target](written.files), "there must be something to damage"
    is_document = not re.search("segment|index", target)
    for damage in [*DAMAGES, *SWAPS, *(DAMAGES_OF_DOCUMENTS if is_document else ())]:
        caplog.clear()
        try:
            check(written, target, damage, caplog)
        except AssertionError as error:
            error.add_note(f"the damage: {damage}")
            raise

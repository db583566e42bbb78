"""Partitions to be audited, and what was found in them."""

from crc32c import crc32c
from msgspec.structs import replace

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation, decode_commit, encode_commit
from exactlog.core.deltalog.log_path import CommitName, parse_delta_log_name
from exactlog.core.record.batch_format import decode_header, place
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from tests.support.partitions import DELTA_LOG, DIRECTORY, FIRST_MS, DataDirectory, copy_of, replace_file, sequenced

CONFIG = TopicConfig(
    overrides={"segment.bytes": "900", "index.interval.bytes": "150"}, segment_bytes=900, index_interval_bytes=150
)
BATCHES = 33
SEGMENTS = [f"{base:020d}.log" for base in (0, 12, 24)]
CHECKPOINTS = (10, 20, 30)


def written(flush_mode=FlushMode.COMMIT):
    """The files of a partition of three segments and three checkpoints, with two idempotent producers."""
    with DataDirectory(config=CONFIG, flush_mode=flush_mode) as disk:
        partition = disk.make()
        for number in range(BATCHES):
            batch = sequenced(number % 2, number // 2, b"%06d" % number, timestamp_ms=FIRST_MS + number)
            disk.commit(partition, batch)
            disk.publish(partition)
        return copy_of(disk.filesystem)


def audit(filesystem, **options):
    return audit_table(filesystem, DIRECTORY, **options)


def found(filesystem, **options):
    """What an audit finds, as kinds and files."""
    return [(str(finding.kind), finding.file) for finding in audit(filesystem, **options).findings]


def damage(filesystem, **options):
    """The damage an audit finds, as kinds and files."""
    findings = audit(filesystem, **options).findings
    return [(str(finding.kind), finding.file) for finding in findings if finding.is_damage]


def commit_name(version):
    return f"_delta_log/{version:020d}.json"


def checkpoint_name(version):
    return f"_delta_log/{version:020d}.checkpoint.json"


def pack_name(first, last):
    return f"_delta_log/{first:020d}.{last:020d}.compacted.json"


def path_of(name):
    return f"{DIRECTORY}/{name}"


def content_of(filesystem, name):
    return filesystem.read_file(path_of(name))


def put(filesystem, name, content):
    replace_file(filesystem, path_of(name), content)


def remove(filesystem, *names):
    for name in names:
        filesystem.remove(path_of(name))


def change(filesystem, name, position, new):
    """Overwrites some bytes of a file."""
    content = bytearray(content_of(filesystem, name))
    content[position : position + len(new)] = new
    put(filesystem, name, bytes(content))


def flip(filesystem, name, byte, bit=0):
    content = content_of(filesystem, name)
    change(filesystem, name, byte, bytes([content[byte] ^ 1 << bit]))


def newest_commit(filesystem):
    names = [name for name in filesystem.list_names(DELTA_LOG) if isinstance(parse_delta_log_name(name), CommitName)]
    return decode_commit(filesystem.read_file(f"{DELTA_LOG}/{max(names)}"), path_hint=max(names))


def respell_commit(filesystem, version, **changes):
    """Puts another, valid delta commit in place of one."""
    name = commit_name(version)
    commit = decode_commit(content_of(filesystem, name), path_hint=name).commit
    put(filesystem, name, encode_commit(replace(commit, **changes)).document)


def put_version(filesystem, *batches, segment, leader_epoch=0, **changes):
    """The next version, made by hand, of batches at the end of a segment; a list of bytes is taken as it is."""
    before = newest_commit(filesystem)
    position = filesystem.file_size(path_of(segment)) if filesystem.exists(path_of(segment)) else 0
    next_offset, content = before.commit.end_offset, b""
    for batch in batches:
        placed = bytearray(batch)
        place(placed, decode_header(placed), base_offset=next_offset, leader_epoch=leader_epoch)
        next_offset = decode_header(placed).next_offset
        content += placed
    filesystem.open(path_of(segment), create=True).write_at((content,), position)
    add = Operation(
        type="add",
        origin_id=9,
        origin_seq=before.commit.version + 1,
        offset_start=before.commit.end_offset,
        offset_end=next_offset - 1,
        segment=segment,
        position=position,
        size=len(content),
    )
    commit = DeltaCommit(
        version=before.commit.version + 1,
        timestamp=before.commit.timestamp,
        txn_id="by-hand:1",
        operations=(add,),
        checkpoint_hint=False,
        end_offset=next_offset,
        last_stable_offset=next_offset,
        log_start_offset=before.commit.log_start_offset,
        leader_epoch=before.commit.leader_epoch,
        data_crc=print_crc(crc32c(content)),
        prev_crc=before.chain_crc,
    )
    document = encode_commit(replace(commit, **changes)).document
    put(filesystem, commit_name(commit.version), document)
    return commit.version

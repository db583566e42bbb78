"""A delta version made as somebody with an editor and the format's page would make it."""

from crc32c import crc32c

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation, decode_commit, encode_commit
from exactlog.core.deltalog.log_path import CommitName, parse_delta_log_name
from exactlog.core.record.batch_format import decode_header, place
from tests.support.partitions import batch_of


def put_version_in_place(filesystem, directory, *values, txn_id="by-hand:1", origin_id=9):
    """Writes records behind the end of a partition's first segment, and the next delta commit, which names them."""
    delta_log = f"{directory}/_delta_log"
    names = [name for name in filesystem.list_names(delta_log) if isinstance(parse_delta_log_name(name), CommitName)]
    before = decode_commit(filesystem.read_file(f"{delta_log}/{max(names)}"), path_hint=max(names))
    start_offset = before.commit.end_offset
    segment = f"{0:020d}.log"
    batch = batch_of(*values)
    place(batch, decode_header(batch), base_offset=start_offset, leader_epoch=before.commit.leader_epoch)
    size = filesystem.file_size(f"{directory}/{segment}")
    filesystem.open(f"{directory}/{segment}").write_at((batch,), size)
    version = before.commit.version + 1
    commit = DeltaCommit(
        version=version,
        timestamp=before.commit.timestamp,
        txn_id=txn_id,
        operations=(
            Operation(
                type="add",
                origin_id=origin_id,
                origin_seq=1,
                offset_start=start_offset,
                offset_end=start_offset + len(values) - 1,
                segment=segment,
                position=size,
                size=len(batch),
            ),
        ),
        checkpoint_hint=False,
        end_offset=start_offset + len(values),
        last_stable_offset=start_offset + len(values),
        log_start_offset=before.commit.log_start_offset,
        leader_epoch=before.commit.leader_epoch,
        data_crc=print_crc(crc32c(bytes(batch))),
        prev_crc=before.chain_crc,
    )
    filesystem.open(f"{delta_log}/{version:020d}.json", create=True).write_at((encode_commit(commit).document,), 0)

"""Which checkpoint a partition is opened from: the newest one that is good, of this history, and has its bytes."""

import logging
from typing import Final

from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion, LeaderEpoch
from exactlog.storage.delta_log_files import DamagedCheckpoint
from exactlog.storage.partition_history import RESTORE_BYTES, PartitionHistory
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import FlushMode, recorded_flush_mode
from exactlog.storage.version_bytes import find_torn_batch

_logger = logging.getLogger(__name__)

_CREATION: Final = DeltaVersion(0)


def choose_checkpoint(
    history: PartitionHistory, files: SegmentFiles, *, boot_epoch: LeaderEpoch | None
) -> Checkpoint | None:
    """The checkpoint to begin from; None where everything is replayed from version 0.

    Args:
        boot_epoch: see `recover`.

    Raises:
        DamageError: acknowledged bytes are missing, or there is nothing to begin from.
    """
    newest_fault: str | None = None
    for found in history.delta_log.checkpoints():
        fault = found.reason if isinstance(found, DamagedCheckpoint) else _find_contradiction(history, found)
        if fault is None and isinstance(found, Checkpoint):
            is_synced = recorded_flush_mode(found.metadata) is FlushMode.COMMIT
            is_of_this_boot = boot_epoch is not None and found.leader_epoch >= boot_epoch
            fault = _find_missing_bytes(history, files, found, is_trusted=is_synced or is_of_this_boot)
            if fault is None:
                _warn_of_gap(history)
                return found
            if is_synced:
                raise DamageError(f"{history.name}: {fault}, as version {found.version} says", hint=RESTORE_BYTES)
        _logger.warning("%s: checkpoint %d is passed over: %s", history.name, found.version, fault)
        newest_fault = newest_fault or fault
    if _CREATION not in history.delta_log.versions:
        raise history.refusal(
            _CREATION,
            f"{history.path_of(_CREATION)} is not there to replay from, and no checkpoint can be used instead "
            f"({newest_fault or 'there is none'})",
            hint=f"restore a checkpoint of {history.delta_log.directory} from a copy",
        )
    return None


def _find_contradiction(history: PartitionHistory, checkpoint: Checkpoint) -> str | None:
    """What shows that a checkpoint is not of this partition, or not of the history that its delta commits tell."""
    misfit = history.find_misfit(checkpoint.metadata)
    if misfit is not None:
        return misfit
    same = history.find_good(checkpoint.version)
    following = history.find_good(DeltaVersion(checkpoint.version + 1)) if same is None else None
    told = same.chain_crc if same is not None else following.commit.prev_crc if following is not None else None
    if told not in (None, checkpoint.chain_crc):
        return f"it is of another history: its chain_crc is {checkpoint.chain_crc}, the delta commits say {told}"
    return None


def _find_missing_bytes(
    history: PartitionHistory, files: SegmentFiles, checkpoint: Checkpoint, *, is_trusted: bool
) -> str | None:
    """What a checkpoint counts and is not there, but for segments that were removed later: they may be gone."""
    for entry in checkpoint.segments:
        path = f"{history.directory}/{entry.name}"
        if not files.filesystem.exists(path):
            if entry.name not in history.find_removals(checkpoint.version):
                return f"{path} is missing"
        elif (size := files.filesystem.file_size(path)) < entry.size:
            return f"{path} has {size} bytes of {entry.size}"
        elif not is_trusted:
            torn = find_torn_batch(files.open(path), entry, newest_epoch=checkpoint.leader_epoch)
            if torn is not None:
                return f"{path}: {torn}"
    return None


def _warn_of_gap(history: PartitionHistory) -> None:
    """Versions before a checkpoint are not needed to open a table; to read it as of them, they are."""
    oldest, runs = history.delta_log.oldest_version, history.delta_log.versions.runs
    if runs and runs[0].first_version < oldest:
        missing = DeltaVersion(oldest - 1)
        _logger.warning(
            "%s: delta version %d is missing, the versions before it cannot be read any more: %s",
            history.name,
            missing,
            history.path_of(missing),
        )

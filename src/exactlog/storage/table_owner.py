"""Whose a partition directory is: the id of the topic that it was made for."""

from contextlib import suppress
from uuid import UUID

from msgspec import UNSET

from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import Filesystem

CREATION = DeltaVersion(0)


def find_owner(filesystem: Filesystem, directory: str) -> UUID | None:
    """The id of the topic that a partition's directory belongs to; None when that cannot be told."""
    with suppress(DamageError, OSError):
        delta_log = DeltaLogFiles(filesystem, directory)
        with suppress(DamageError):
            metadata = delta_log.read_commit(CREATION)[0].commit.metadata
            if metadata is not UNSET:
                return metadata.topic_id
        found = delta_log.newest_checkpoint()
        if found is not None:
            return found.metadata.topic_id
    return None

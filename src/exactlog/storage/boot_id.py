"""Since when the machine has been running: what a killed process had written outlives it, but not the power."""

from pathlib import Path
from typing import Final

from exactlog.core.model.ids import LeaderEpoch
from exactlog.storage.catalog import Catalog

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_SETTING: Final = "boot_id"
_EPOCH_SETTING: Final = "boot_leader_epoch"


def note_boot(catalog: Catalog, leader_epoch: int) -> LeaderEpoch | None:
    """Tells, and keeps in the catalog, under which leader epoch this node was first started since its machine was.

    All that was ever written under that epoch or a later one is there, synced or not. Of what was written under earlier
    ones that has to be seen first, at each partition's first opening: hence an epoch, and not only whether the machine
    has run on since the last start.

    Args:
        leader_epoch: that of this start.

    Returns:
        None where the operating system does not tell.
    """
    try:
        boot_id = _BOOT_ID.read_text().strip()
    except OSError:
        return None
    known = catalog.get(_EPOCH_SETTING)
    if known is not None and catalog.get(_BOOT_ID_SETTING) == boot_id:
        return LeaderEpoch(int(known))
    catalog.put(_EPOCH_SETTING, str(leader_epoch))  # first: without the id that belongs to it, it says nothing
    catalog.put(_BOOT_ID_SETTING, boot_id)
    return LeaderEpoch(leader_epoch)

"""Whether the machine has been started anew: what a killed process had written outlives it, but not the power."""

from pathlib import Path

from exactlog.storage.catalog import Catalog

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SETTING = "boot_id"


def remember_boot(catalog: Catalog) -> bool:
    """Keeps in the catalog when the machine was started; whether it is still the same as at the last call.

    False where the operating system does not tell, and on a new catalog.
    """
    try:
        now = _BOOT_ID.read_text().strip()
    except OSError:
        return False
    is_same = catalog.get(_SETTING) == now
    if not is_same:
        catalog.put(_SETTING, now)
    return is_same

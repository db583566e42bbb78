"""What an error of SQLite means to who asked."""

import sqlite3
from typing import Final

from exactlog.core.journal.errors import Retriable
from exactlog.core.model.errors import DamageError

_FOR_NOW: Final = {
    sqlite3.SQLITE_BUSY: "another program writes to it; wait, or give it less to do at a time",
    sqlite3.SQLITE_LOCKED: "another program writes to it; wait, or give it less to do at a time",
    sqlite3.SQLITE_PROTOCOL: "another program writes to it; wait, or give it less to do at a time",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_NOMEM: "there is too little memory",
    sqlite3.SQLITE_IOERR: "look for errors of the disk",
    sqlite3.SQLITE_CANTOPEN: "see that its folder is there, and may be written to",
    sqlite3.SQLITE_READONLY: "see that the file and its folder may be written to",
    sqlite3.SQLITE_PERM: "see that the file and its folder may be written to",
}
"""What may go well another time, and what to do for it."""
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def told(error: sqlite3.Error, place: str) -> Retriable | DamageError | None:
    """The error to raise; None: it is a fault of ours."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _FOR_NOW:
        return Retriable(f"{place}: {error}", hint=_FOR_NOW[code])
    if code in _DAMAGE:
        return DamageError(f"{place}: {error}", hint="restore it from a copy, or replicate anew into another file")
    return None

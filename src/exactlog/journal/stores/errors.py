"""How opening a store can fail."""

from exactlog.core.journal.errors import JournalError


class StoreUrlError(JournalError):
    """A url names no store that there is."""

    code = "store-url"


class StoreSchemaError(JournalError):
    """The tables of a store are not such as this version of exactlog makes, or can bring up to date."""

    code = "store-schema"


class NewerSchemaError(StoreSchemaError):
    """A newer version of a program made the tables. They are left as they are.

    Attributes:
        version: of the schema that is there.
        known: the newest version that is known here.
    """

    code = "store-schema-newer"

    def __init__(self, place: str, *, version: int, known: int) -> None:
        super().__init__(
            f"{place} has schema version {version}; this version of exactlog knows those up to {known}",
            hint="use the version of exactlog that made it, or a later one",
        )
        self.version = version
        self.known = known


class DriverMissingError(JournalError):
    """The package through which a store is reached is not installed."""

    code = "driver-missing"

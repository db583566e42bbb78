"""Topics and partitions, as the command line spells them."""

from exactlog.cli.errors import InvalidUsageError


def split_target(target: str) -> tuple[str, int | None]:
    """The topic and the partition that `TOPIC` or `TOPIC:PARTITION` names; None: all of them.

    Raises:
        InvalidUsageError: the partition is no number.
    """
    topic, colon, partition = target.partition(":")
    if colon and not (partition.isascii() and partition.isdigit()):
        raise InvalidUsageError(f"{target!r} is not of the form TOPIC or TOPIC:PARTITION")
    return topic, int(partition) if colon else None

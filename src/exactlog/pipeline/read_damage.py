"""How a piece of the log that cannot be read is told of: by topic, partition, offset and version."""

from exactlog.core.model.errors import DamageError
from exactlog.pipeline.source import Slice


def damage_at(piece: Slice, offset: int, reason: object, *, hint: str = "") -> DamageError:
    """The error that names what cannot be read.

    Args:
        piece: what was being read.
        offset: the first offset that cannot be read.
        reason: what is wrong with it.
        hint: what to do next.
    """
    version = "" if piece.version is None else f" as of version {piece.version}"
    return DamageError(
        f"topic {piece.topic}, partition {piece.partition}, offset {offset}{version} cannot be read: {reason}",
        hint=hint or "look what is wrong with `exactlog log verify`",
    )

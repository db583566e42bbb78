"""Which partition of a coordinator's topic a group or a transactional id belongs to: Kafka's formula."""

from typing import Final

_MODULUS: Final = 2**32
_SIGN: Final = 2**31


def java_string_hash(text: str) -> int:
    """The hash that Java's String has: signed, 32 bits, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for at in range(0, len(units), 2):
        result = (31 * result + (units[at] << 8 | units[at + 1])) % _MODULUS
    return result - _MODULUS if result >= _SIGN else result


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition: the hash's absolute value (of the least number: 0), modulo their count."""
    if partition_count == 1:
        return 0
    found = java_string_hash(key)
    return 0 if found == -_SIGN else abs(found) % partition_count

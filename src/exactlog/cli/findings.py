"""What `exactlog doctor` finds: one line each, with what, why and what to do next."""

from enum import Enum

from msgspec import Struct


class Verdict(Enum):
    """How good a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """Something that was looked at.

    Attributes:
        check: what was looked at, in a word or two; stable.
        verdict: how good it is.
        message: what was found.
        why: what it matters for; empty where all is well.
        hint: what to do next; empty where there is nothing to do.
    """

    check: str
    verdict: Verdict
    message: str
    why: str = ""
    hint: str = ""


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, message)


def warn(check: str, message: str, *, why: str, hint: str) -> Finding:
    """It works, and not as well as it could."""
    return Finding(check, Verdict.WARN, message, why, hint)


def fail(check: str, message: str, *, why: str, hint: str) -> Finding:
    """A broker or a client would not work."""
    return Finding(check, Verdict.FAIL, message, why, hint)

"""Tells those who wait for a coordinator: each of them, whatever becomes of the others."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from exactlog.core.model.decisions import Answer, Decision, Waiter
from exactlog.core.model.error_code import ErrorCode

_logger = logging.getLogger(__name__)

NOT_TOLD: Final = "somebody who waited for a coordinator could not be told"


def tell(answers: Iterable[Answer], *, asker: Waiter | None = None) -> None:
    """Tells each waiter its outcome; what the asker itself raises is raised once all are told."""
    own_error: Exception | None = None
    for answer in answers:
        try:
            answer.waiter.answer(answer.outcome)
        except Exception as error:
            if answer.waiter is asker:
                own_error = error
            else:
                _logger.exception(NOT_TOLD)
    if own_error is not None:
        raise own_error


def waiters_of(decision: Decision) -> list[Waiter]:
    """Whom a decision tells something."""
    return [answer.waiter for answer in (*decision.answers, *decision.told_at_once)]


def send_away(waiters: Iterable[Waiter], error_code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
    """Tells each waiter once that there is no outcome, and why."""
    for waiter in dict.fromkeys(waiters):
        try:
            waiter.fail(error_code)
        except Exception:
            _logger.exception(NOT_TOLD)


def call_back(callbacks: Iterable[Callable[[ErrorCode], None]], error_code: ErrorCode) -> None:
    """Calls each of them, with what became of what they wait for."""
    for callback in callbacks:
        try:
            callback(error_code)
        except Exception:
            _logger.exception(NOT_TOLD)

import json

from exactlog.cli.errors import error_line, error_text
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError


def test_a_program_gets_one_line_of_json():
    line = error_line(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "pay-7 is\nbusy", hint="Wait."))

    assert "\n" not in line
    assert json.loads(line) == {
        "error": {
            "code": "kafka-error",
            "message": "pay-7 is\nbusy",
            "retryable": True,
            "kafka_error": 51,
            "hint": "Wait.",
        }
    }


def test_an_error_without_a_kafka_code_has_null_there():
    fault = json.loads(error_line(DamageError("torn")))["error"]

    assert (fault["code"], fault["kafka_error"], fault["retryable"], fault["hint"]) == ("damage", None, False, "")


def test_people_get_the_message_and_the_next_step():
    assert error_text(DamageError("torn", hint="Run it again.")) == "exactlog: torn\n  Run it again."
    assert error_text(DamageError("torn")) == "exactlog: torn"

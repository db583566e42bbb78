"""Names say what a thing is. These words say nothing. (The name of a test is a sentence, and may use any.)"""

import ast
import re

from tests.architecture.tree import python_files, shown, syntax_tree

EMPTY_WORDS = {
    "common",
    "helper",
    "helpers",
    "info",
    "manager",
    "misc",
    "process",
    "processor",
    "stuff",
    "util",
    "utilities",
    "utils",
}
EMPTY_MODULE_NAMES = {"base", "data", "do", "functions", "types"}

NAMED_BY_OTHERS = {
    "get_extra_info",  # asyncio's
    "process_recorder",  # what the library eventsourcing calls a recorder of events and of where they came from
    "expected_process_recorder_class",
    "JournalProcessRecorder",
}

# Kafka's own names travel as they are: the messages declare what the protocol calls them.
OURS = [path for path in python_files() if "messages" not in path.parts]


def words(name: str) -> set[str]:
    """`decodeHTTPFrame`, `decode_http_frame` -> {decode, http, frame}."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_modules_classes_and_functions_have_names_that_say_something() -> None:
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    empty = [
        f"{shown(path)}: {name}"
        for path in OURS
        for name in [path.stem, *(node.name for node in ast.walk(syntax_tree(path)) if isinstance(node, definitions))]
        if words(name) & EMPTY_WORDS and name not in NAMED_BY_OTHERS and not name.startswith("test_")
    ]

    assert empty == []


def test_modules_are_not_named_for_being_modules() -> None:
    assert [shown(path) for path in OURS if path.stem in EMPTY_MODULE_NAMES] == []


def test_words_are_found_in_every_spelling() -> None:
    assert words("FetchSessionManager") == {"fetch", "session", "manager"}
    assert words("_do_misc_HTTPThing") == {"do", "misc", "http", "thing"}

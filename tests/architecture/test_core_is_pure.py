"""What the import contracts cannot see: third parties in the core, and impure functions of pure modules."""

import ast
import sys
from collections.abc import Iterator

from tests.architecture.tree import python_files, shown, syntax_tree

THIRD_PARTIES = {"msgspec", "crc32c", "cramjam"}

# Time and choice come in as arguments; bytes come in and go out as values.
IMPURE_CALLS = {
    "breakpoint",
    "date.today",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "input",
    "open",
    "print",
    "uuid.getnode",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid1",
    "uuid4",
}

CORE = python_files("src/exactlog/core")


def imported_packages(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


def impure_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ".".join(ast.unparse(node.func).rsplit(".", 2)[-2:])
            if name in IMPURE_CALLS:
                yield f"{name} in line {node.lineno}"


def test_the_core_imports_only_the_third_parties_it_was_given() -> None:
    allowed = sys.stdlib_module_names | THIRD_PARTIES | {"exactlog"}
    imported = {shown(path): set(imported_packages(syntax_tree(path))) for path in CORE}

    assert {path: packages - allowed for path, packages in imported.items() if packages - allowed} == {}


def test_the_core_calls_nothing_that_looks_outside() -> None:
    called = {shown(path): list(impure_calls(syntax_tree(path))) for path in CORE}

    assert {path: calls for path, calls in called.items() if calls} == {}


def test_an_impure_call_is_found_however_it_is_spelt() -> None:
    source = "import datetime\nx = datetime.datetime.now()\ny = uuid4()\nz = open('f')\nw = self.reopen()"

    assert list(impure_calls(ast.parse(source))) == ["datetime.now in line 2", "uuid4 in line 3", "open in line 4"]

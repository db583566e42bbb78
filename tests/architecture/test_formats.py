"""Every layout of bytes has a module `*_format.py` and a page of the same name."""

import ast

from tests.architecture.tree import PROJECT, markdown_pages, python_files, shown, syntax_tree

PAGES = PROJECT / "docs" / "formats"
FORMATS = [path for path in python_files("src/exactlog") if path.stem.endswith("_format")]


def test_every_format_has_a_page_of_its_name() -> None:
    assert [path.stem for path in FORMATS if not (PAGES / f"{path.stem}.md").is_file()] == []


def test_every_page_of_a_format_has_its_module() -> None:
    modules = {path.stem for path in FORMATS}
    pages = [page for page in markdown_pages() if page.parent == PAGES and page.stem.endswith("_format")]

    assert [shown(page) for page in pages if page.stem not in modules] == []


def test_every_format_shows_its_layout_in_its_docstring() -> None:
    docstrings = {shown(path): ast.get_docstring(syntax_tree(path)) or "" for path in FORMATS}

    assert [path for path, docstring in docstrings.items() if len(docstring.splitlines()) < 3] == []

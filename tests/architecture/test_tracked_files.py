"""What the repository holds is about the product, and nothing in it knows the machine it was written on."""

import re

from tests.architecture.tree import PROJECT, markdown_pages, project_files, shown

# Written in pieces, so that this file does not hold what it forbids.
REGISTRY_HOSTS = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("proxy", "golang", "org"),
    ("sum", "golang", "org"),
    ("npmjs", "org"),
    ("crates", "io"),
    ("deb", "debian", "org"),
)
HOME_FOLDERS = ("work", "root", "home", "Users", "farm", "opt")

FORBIDDEN = (
    re.compile("|".join(rf"\b{re.escape('.'.join(parts))}\b" for parts in REGISTRY_HOSTS)),
    re.compile(rf"(?<![\w./}}~-])/(?:{'|'.join(HOME_FOLDERS)})/"),
    re.compile(r"\b(?:DESIGN|INTERFACES)[.]md\b|\bshared/(?:reference|seeds|design|bench|tools)\b|[.]library\b"),
)
FILE_BYTES_MAX = 500_000


def test_no_file_names_a_registry_a_machine_or_a_working_paper() -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), start=1)
        if any(pattern.search(line) for pattern in FORBIDDEN)
    ]

    assert found == []


def test_no_file_is_large() -> None:
    assert [shown(path) for path in project_files() if path.stat().st_size > FILE_BYTES_MAX] == []


def test_every_page_has_one_title() -> None:
    prose = {
        page: re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL) for page in markdown_pages()
    }

    assert [shown(page) for page, text in prose.items() if len(re.findall(r"^# ", text, flags=re.MULTILINE)) != 1] == []
    assert [shown(page) for page, text in prose.items() if not text.lstrip().startswith("# ")] == []


def test_every_link_to_a_file_leads_somewhere() -> None:
    broken = [
        f"{shown(page)}: {target}"
        for page in markdown_pages()
        for target in re.findall(r"\[[^\]]+\]\(([^)\s#]+)[^)]*\)", page.read_text())
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]

    assert broken == []


def test_the_index_of_the_documentation_names_every_page() -> None:
    docs = PROJECT / "docs"
    indexes = [page for page in markdown_pages() if page.is_relative_to(docs) and page.name == "README.md"]
    indexed = {
        (index.parent / target).resolve()
        for index in indexes
        for target in re.findall(r"\]\(([^)#]+)", index.read_text())
    }
    pages = [page for page in markdown_pages() if page.is_relative_to(docs) and page not in indexes]

    assert [shown(page) for page in pages if page not in indexed] == []

import subprocess
import sys

import pytest

HEAVY = ("msgspec", "asyncio", "exactlog.node", "exactlog.broker", "exactlog.testing.broker", "click", "uvloop")


def test_importing_the_plugin_imports_nothing_heavy():
    program = f"""
import pytest, sys
before = set(sys.modules)
import exactlog.testing.pytest_plugin
print(sorted((set(sys.modules) - before) & set({HEAVY!r})))
"""

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "[]"


def test_the_package_knows_its_names_without_importing_them():
    program = "import exactlog.testing, sys; print('exactlog.testing.broker' in sys.modules)"

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "False"


def test_a_name_the_package_does_not_have_is_an_attribute_error():
    import exactlog.testing

    with pytest.raises(AttributeError, match="no attribute 'Breaker'"):
        _ = exactlog.testing.Breaker


def test_the_fixtures_work_in_a_suite_of_somebody_else(tmp_path):
    suite = tmp_path / "test_suite.py"
    suite.write_text(
        """
import pytest

seen = []

@pytest.mark.parametrize("n", [1, 2])
def test_topic(exactlog_broker, exactlog_topic, n):
    assert exactlog_broker.metrics()["exactlog_topics"] == n
    assert exactlog_topic.startswith(f"test_topic-{n}-")
    seen.append(exactlog_topic)

def test_names_differ(exactlog_topic):
    assert exactlog_topic not in seen
"""
    )

    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", suite],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 passed" in shown.stdout, shown.stdout + shown.stderr

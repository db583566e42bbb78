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

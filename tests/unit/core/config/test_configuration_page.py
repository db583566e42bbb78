from tools.configuration_page import PAGE, render


def test_the_page_about_configuration_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "python -m tools.configuration_page writes it anew"

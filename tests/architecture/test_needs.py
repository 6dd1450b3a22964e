"""Tests that `make test` leaves out where something is not installed run in `.ci/full`, which requires it."""

import re

from tests.architecture.sources import ROOT
from tests.needs import NEEDS, OF_FIXTURES


def test_a_full_run_requires_whatever_a_test_needs() -> None:
    scripts = [(ROOT / one).read_text("utf-8") for one in (".ci/full", ".ci/run", "Makefile")]
    required = re.findall(r'required\+?="([^"$]+)"', "\n".join(scripts), re.IGNORECASE)

    assert set(" ".join(required).split()) == NEEDS.keys()


def test_what_tests_need_is_known() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    marked = {
        one for file in files for one in re.findall(r'mark\.needs\("([\w-]+)"\)', file.read_text("utf-8"))
    }

    assert {"frameworks", *marked, *OF_FIXTURES.values()} == NEEDS.keys()

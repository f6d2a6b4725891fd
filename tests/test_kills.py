"""A hundred kills, in ``make test-long``; see :mod:`tests.kills`."""

import pytest

from tests import kills


@pytest.mark.long
def test_what_was_killed_goes_on_and_gives_the_same_results():
    assert kills.main(100) == 0

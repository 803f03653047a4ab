from midtoken.checks.check import Mark
from midtoken.checks.environment import check_packages, check_python


def test_only_the_tested_python_is_good() -> None:
    assert check_python((3, 11)).mark is Mark.GOOD
    newer = check_python((3, 14))
    assert (newer.mark, newer.advice != "") == (Mark.NOTE, True)


def test_the_packages_of_each_extra_are_listed_with_their_versions() -> None:
    names = [check.what.partition(" ")[0] for check in check_packages(needs_server=True)]
    assert names == ["midtoken", "midtoken[server]", "midtoken[torch]", "midtoken[plot]"]
    for check in check_packages(needs_server=True):
        assert check.mark is Mark.GOOD, check

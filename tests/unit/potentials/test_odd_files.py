"""Generated files of atoms, valid and damaged: read as meant, or refused with file and frame."""

import pytest
from odd_atoms import FAULTS, FORMATS, odd_file, outcome

RIGHT = {False: "right", True: "refused"}
EVERY_FORMAT = 2 * len(FORMATS)  # valid and damaged files in turn


def ended(number, folder):
    """Return how a file ended, how it has to end, and details."""
    how, about = outcome(number, folder)
    return how, RIGHT[odd_file(number).fault is not None], about


@pytest.mark.parametrize("number", range(EVERY_FORMAT))
def test_a_valid_and_a_damaged_file_of_each_format(tmp_path, number):
    how, wanted, about = ended(number, tmp_path)
    assert how == wanted, about


CASES = [(name, fault) for fault, (names, _) in FAULTS.items() for name in names]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_a_fault_is_refused_in_every_format_that_can_have_it(tmp_path, name, fault):
    own = [each for each, (names, _) in FAULTS.items() if name in names]
    number = EVERY_FORMAT * own.index(fault) + len(FORMATS) + FORMATS.index(name)
    file = odd_file(number)
    assert (file.format, file.fault) == (name, fault)
    how, _, about = ended(number, tmp_path)
    assert how == "refused", about


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_six_hundred_files(tmp_path, first):
    wrong = []
    for number in range(first, first + 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        how, wanted, about = ended(number, folder)
        if how != wanted:
            wrong.append(about)
    assert not wrong

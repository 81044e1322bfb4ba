import pytest

from service.overlay.ring import digit, from_hex, shared_digits, to_hex

TEXT = "0123456789abcdef" * 2 + "01234567"
POINT = from_hex(TEXT)


def test_points_survive_conversion_to_hex() -> None:
    assert to_hex(POINT) == TEXT
    assert to_hex(0) == "0" * 40
    assert to_hex((1 << 160) - 1) == "f" * 40


@pytest.mark.parametrize(
    ("base", "digits"),
    [(2, [0, 0, 0, 0, 0, 0, 0, 1]), (4, [0, 0, 0, 1]), (16, [0, 1, 2, 3]), (256, [0x01, 0x23, 0x45])],
)
def test_digits_are_read_from_the_most_significant_end(base: int, digits: list[int]) -> None:
    assert [digit(POINT, index, base) for index in range(len(digits))] == digits


def test_the_last_digit_is_the_least_significant() -> None:
    assert digit(POINT, 39, 16) == 7
    assert digit(POINT, 159, 2) == 1


@pytest.mark.parametrize(("base", "shared"), [(2, 10), (4, 5), (16, 2), (256, 1)])
def test_shared_digits_are_whole_leading_digits(base: int, shared: int) -> None:
    assert shared_digits(POINT, POINT ^ 1 << 149, base) == shared


def test_a_point_shares_all_digits_with_itself() -> None:
    assert shared_digits(POINT, POINT, 16) == 40

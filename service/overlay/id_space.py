"""Points of the 160-bit id space: integers in memory, 40 hex digits elsewhere (Corona §4).

A point is a sequence of digits, the most significant first. The base of the digits is 2, 4, 16, 32 or 256, because a
whole number of digits must fill 160 bits.
"""

BITS = 160


def from_hex(text: str) -> int:
    """Return the point with these 40 hex digits."""
    return int(text, 16)


def to_hex(point: int) -> str:
    """Return the 40 lower-case hex digits of a point."""
    return f"{point:040x}"


def digit(point: int, index: int, base: int) -> int:
    """Return the digit of ``point`` at ``index`` in a number system with this base.

    Index 0 is the most significant digit.
    """
    width = _digit_bits(base)
    return point >> (BITS - width * (index + 1)) & (base - 1)


def shared_digits(a: int, b: int, base: int) -> int:
    """Return the number of leading digits, in this base, that two points have in common."""
    return (BITS - (a ^ b).bit_length()) // _digit_bits(base)


def _digit_bits(base: int) -> int:
    return base.bit_length() - 1

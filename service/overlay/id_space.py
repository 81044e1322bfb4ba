"""Points of the 160-bit id space: integers in memory, 40 hex digits elsewhere (Corona §4).

A point is a sequence of digits of base 2, 4, 16, 32 or 256 (whole digits must fill 160 bits), the most significant
first.
"""

BITS = 160


def from_hex(text: str) -> int:
    """Return the point with these 40 hex digits."""
    return int(text, 16)


def to_hex(point: int) -> str:
    """Return the 40 lower-case hex digits of a point."""
    return f"{point:040x}"


def distance(a: int, b: int) -> int:
    """Return the XOR distance of two points: the first bit in which they differ matters most.

    It is symmetric, and no two points have the same distance from a third.
    """
    return a ^ b


def digit(point: int, index: int, base: int) -> int:
    """Return a point's digit at ``index``, counted from 0 at the most significant, in a number system of this base."""
    width = _digit_bits(base)
    return point >> (BITS - width * (index + 1)) & (base - 1)


def shared_digits(a: int, b: int, base: int) -> int:
    """Return how many leading digits of this base two points have in common."""
    return (BITS - distance(a, b).bit_length()) // _digit_bits(base)


def _digit_bits(base: int) -> int:
    return base.bit_length() - 1

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
    """Return the XOR distance, which is symmetric, unique for each b, and dominated by the first different bit."""
    return a ^ b


def digit(point: int, index: int, base: int) -> int:
    """Return the digit at ``index`` (0 is the most significant)."""
    width = _digit_bits(base)
    return point >> (BITS - width * (index + 1)) & (base - 1)


def shared_digits(a: int, b: int, base: int) -> int:
    """Return the number of leading digits that two points have in common."""
    return (BITS - distance(a, b).bit_length()) // _digit_bits(base)


def _digit_bits(base: int) -> int:
    return base.bit_length() - 1

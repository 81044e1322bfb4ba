"""Decoding of one known content coding within the limit; errors for all else."""

import gzip
import tracemalloc
import zlib

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest
import zstandard

from service.errors import BadHttp, TooLarge
from service.net.content_encoding import decode, parse_content_coding

TEXT = b"<rss/>" * 100
CAP = 10_000


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", PACKED)
def test_each_coding_is_decoded(coding: str) -> None:
    assert decode(PACKED[coding](TEXT), coding, CAP) == TEXT


def test_raw_deflate_is_decoded() -> None:
    assert decode(raw_deflate(TEXT), "deflate", CAP) == TEXT


def test_gzip_with_several_members_and_padding_is_decoded() -> None:
    assert decode(gzip.compress(b"a") + gzip.compress(b"b") + b"\0\0", "gzip", CAP) == b"ab"


@pytest.mark.parametrize("coding", PACKED)
def test_the_size_limit_is_exact(coding: str) -> None:
    assert len(decode(PACKED[coding](b"x" * CAP), coding, CAP)) == CAP
    with pytest.raises(TooLarge):
        decode(PACKED[coding](b"x" * (CAP + 1)), coding, CAP)


@pytest.mark.parametrize("coding", PACKED)
def test_a_decompression_bomb_uses_no_more_memory_than_the_limit(coding: str) -> None:
    bomb = PACKED[coding](bytes(16 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decode(bomb, coding, CAP)
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_truncated_body_is_an_error(coding: str) -> None:
    with pytest.raises(BadHttp):
        decode(PACKED[coding](TEXT)[:-3], coding, CAP)


@pytest.mark.parametrize("coding", PACKED)
def test_a_corrupt_body_is_an_error(coding: str) -> None:
    with pytest.raises(BadHttp):
        decode(b"\xff\xfe<html>not packed</html>", coding, CAP)


def test_too_many_gzip_members_are_an_error() -> None:
    with pytest.raises(BadHttp):
        decode(gzip.compress(b"") * 1000, "gzip", CAP)


@pytest.mark.parametrize(
    ("values", "coding"), [([], ""), ([""], ""), (["identity"], ""), (["GZIP"], "gzip"), (["br, identity"], "br")]
)
def test_the_coding_is_read_from_the_header(values: list[str], coding: str) -> None:
    assert parse_content_coding(values) == coding


@pytest.mark.parametrize("values", [["gzip, gzip"], ["gzip", "br"], ["compress"], ["exi"], ["x" * 5000]])
def test_nested_and_unknown_codings_are_errors(values: list[str]) -> None:
    with pytest.raises(BadHttp):
        parse_content_coding(values)

"""A signature is valid for one request to one worker, once, within a window."""

import pytest

from service.errors import PeerProtocolError
from service.net import peer_request_signatures
from service.net.peer_request_signatures import WINDOW_S, RequestSigner, parse_signature

NOW_S = 1_000_000.0
ME, OTHER = "a" * 40, "b" * 40


def request(number: int, at_s: float = NOW_S) -> str:
    return RequestSigner("secret", OTHER).sign(ME, "find", b"body", f"{number:024x}", at_s).header()


def refusal_of(signer: RequestSigner, header: str, now_s: float) -> str:
    try:
        signer.verify(parse_signature(header), "find", b"body", now_s)
    except PeerProtocolError as error:
        return error.reason
    return ""


def test_requests_beyond_the_nonce_limit_are_refused_until_the_window_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_request_signatures, "MAX_NONCES", 3)
    signer = RequestSigner("secret", ME)
    assert [refusal_of(signer, request(number), NOW_S) for number in range(5)] == ["", "", "", "flood", "flood"]
    assert refusal_of(signer, request(0), NOW_S) == "replay"
    later_s = NOW_S + 2 * WINDOW_S + 2
    assert refusal_of(signer, request(9, later_s), later_s) == ""


def test_a_request_from_a_fast_clock_cannot_be_replayed_later() -> None:
    signer = RequestSigner("secret", ME)
    ahead = request(1, NOW_S + WINDOW_S)
    assert refusal_of(signer, ahead, NOW_S) == ""
    assert refusal_of(signer, ahead, NOW_S + 2 * WINDOW_S) == "replay"
    assert refusal_of(signer, ahead, NOW_S + 2 * WINDOW_S + 1) == "late"


@pytest.mark.parametrize(
    "header",
    ["", "coronet1", f"coronet1 {OTHER} {'9' * 17} {'0' * 24} {'0' * 64}", f"coronet2 {OTHER} 1 {'0' * 24} {'0' * 64}"],
)
def test_an_invalid_signature_header_is_refused(header: str) -> None:
    with pytest.raises(PeerProtocolError) as error:
        parse_signature(header)
    assert error.value.reason == "signature"


def test_a_response_is_valid_for_its_request_only() -> None:
    signer, other_signer = RequestSigner("secret", ME), RequestSigner("secret", OTHER)
    mac = other_signer.response_mac("1" * 24, 200, b"answer")
    signer.verify_response("1" * 24, 200, b"answer", mac)
    for nonce, status, body in (("2" * 24, 200, b"answer"), ("1" * 24, 409, b"answer"), ("1" * 24, 200, b"other")):
        with pytest.raises(PeerProtocolError):
            signer.verify_response(nonce, status, body, mac)

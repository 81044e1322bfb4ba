"""SASL logins of `coronet doctor`, compared with the examples of the RFCs."""

import secrets

import pytest

from service.errors import OperationalError
from service.operations.doctor.sasl_login import SaslLogin


def test_scram_computes_the_proof_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "rOprNGfwEbeRWgbNEkqO")
    login = SaslLogin({"PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"}, "user", "pencil")
    assert (login.mechanism, login.first_message) == ("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert login.answer(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()).decode() == (
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )


def test_plain_is_used_only_if_nothing_better_is_offered() -> None:
    login = SaslLogin({"PLAIN", "EXTERNAL"}, "user", "pencil")
    assert (login.mechanism, login.first_message) == ("PLAIN", b"\0user\0pencil")
    with pytest.raises(OperationalError, match="no login with a password"):
        SaslLogin({"EXTERNAL"}, "user", "pencil")


@pytest.mark.parametrize("challenge", [b"", b"\xff", b"r=1", b"r=1,s=YQ==,i=x", b"r=1,s=a,i=1", b"r=1,s=YQ==,i=4096"])
def test_an_invalid_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(OperationalError, match="SASL challenge"):
        SaslLogin({"SCRAM-SHA-1"}, "user", "pencil").answer(challenge)

"""CSRF tokens and password hashes."""

from service.console.auth.csrf import csrf_token
from service.console.auth.passwords import Passwords


def test_csrf_tokens_depend_on_the_cookie_and_do_not_reveal_it() -> None:
    assert csrf_token("a") == csrf_token("a")
    assert csrf_token("a") != csrf_token("b")
    assert "secret-cookie" not in csrf_token("secret-cookie")


async def test_a_password_matches_only_its_own_hash() -> None:
    passwords = Passwords()
    stored = await passwords.hash("correct horse")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await passwords.verify("correct horse", stored)
    assert not await passwords.verify("wrong horse", stored)
    assert not await passwords.verify("correct horse", "")
    assert not await passwords.verify("correct horse", "not a hash")

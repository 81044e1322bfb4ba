"""Conversion of publishers' HTML to safe plain text."""

import pytest

from service.feeds.parsing.html_text import one_line, plain_text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>One</p><p>two</p>", "One\ntwo"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<ul><li>x</li><li>y</li></ul>", "x\ny"),
        ("<td>x</td><td>y</td>", "x y"),
        ("Tom &amp; Jerry &lt;3", "Tom & Jerry <3"),
        ("a < b", "a < b"),
        ("<script>alert(1)</script>Hi<style>p{}</style>", "Hi"),
        ("<svg onload=alert(1)>x</svg>Hi", "Hi"),
        ("<img src=x onerror=alert(1)>Hi", "Hi"),
        ("  many \n\n\n   spaces ", "many\nspaces"),
        ("&lt;/body&gt;&lt;/message&gt;", "</body></message>"),
        ("&#x110000;&#0;x", "\ufffd\ufffdx"),
        ("<b>&amp;lt; &lt;&amp;amp;&gt; &nbsp;&quot;&#8364;&NotANameAtAll;</b>", '&lt; <&amp;> "€&NotANameAtAll;'),
        ("<" * 8_000, "<" * 599 + "…"),
        ("", ""),
    ],
)
def test_markup_becomes_text(markup: str, text: str) -> None:
    assert plain_text(markup, 600) == text


@pytest.mark.parametrize(
    "junk", ["\x00", "\x07", "\x1b", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\U000e0041", "\ud800", "\uffff"]
)
def test_invisible_and_misleading_characters_are_removed(junk: str) -> None:
    assert one_line(f"a{junk}b", 100) == "ab"
    assert plain_text(f"<i>a{junk}b</i>", 100) == "ab"


def test_zero_width_joiners_are_kept() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert one_line(family, 100) == family


def test_long_text_is_truncated_at_a_word() -> None:
    assert one_line("one two three four", 12) == "one two…"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"

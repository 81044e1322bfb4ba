"""Replies: what a dialogue returns and the text that says it, short and with the next useful step. Pure.

A module per topic, a class per reply (see :mod:`bots.replies.base`). Texts are styled by XEP-0393.
"""

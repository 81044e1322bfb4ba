"""Texts of replies: the longer texts that dialogues return, by topic, and helpers for all texts.

Texts are short, name the next useful step, and are styled by XEP-0393.
"""

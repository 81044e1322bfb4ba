"""Texts of replies: the longer texts that dialogues return, grouped by topic, and helpers for all texts.

Texts are short, tell the user what to do next where that helps, and are styled according to XEP-0393.
"""

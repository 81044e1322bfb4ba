"""Replies: classes for the results of dialogues, with the texts for the user.

There is a module for each topic and a class for each reply (see :mod:`bots.replies.base`). Texts are short, name the
next useful step, and are styled by XEP-0393.
"""

"""What an agent retains: typed, attributed lines in its daily notes, for people to read and edit.

To *remember* is to retain one sentence now (`remember.py`); a *retained line* is the result in the note,
whoever wrote it.
"""

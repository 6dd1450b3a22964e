"""What an agent retains: typed, attributed lines in the notes of its days, for people to read and edit.

To remember is to retain one sentence now (`remember.py`); a *retained line* is what stands in the note
afterwards, whoever wrote it there.
"""

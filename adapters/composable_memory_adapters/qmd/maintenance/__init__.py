"""Keeps QMD's index up to date: updates, embeddings, and session transcripts exported as Markdown."""

"""How QMD's index follows the files: updates, embeddings, transcripts as Markdown."""

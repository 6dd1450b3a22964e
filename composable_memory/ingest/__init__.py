"""Takes contents in: cleans them, extracts entities and relations, and stores them in vectors and a graph.

`pipeline` runs the stages; `records` turns what was found into nodes, edges and vector records; `lifetimes`
decides how long a content holds; `note_reader` makes contents of notes and transcripts.
"""

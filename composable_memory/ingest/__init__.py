"""Ingests contents: cleans them, extracts entities and relations, and stores them in vectors and a graph.

`pipeline` runs the stages; `records` turns the results into nodes, edges and vector records; `lifetimes`
decides how long a content holds; `note_reader` turns notes and transcripts into contents.
"""

"""The index file: its tables, the statements that read and write them, and its metadata."""

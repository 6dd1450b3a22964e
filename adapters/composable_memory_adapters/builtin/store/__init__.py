"""The index file: its tables, what is written to and read from them, and what it notes about itself."""

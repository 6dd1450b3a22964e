"""The inspector: pages that show why a memory was found or not, and the same view as a file."""

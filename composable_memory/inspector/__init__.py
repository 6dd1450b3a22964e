"""The inspector: pages that show why something was found or not, and the same view as a file."""

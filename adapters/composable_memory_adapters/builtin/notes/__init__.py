"""What is indexed: which files are notes, which of them changed, and how they are cut into chunks."""

"""The state folder: where each workspace's files are, and which workspace a folder is."""

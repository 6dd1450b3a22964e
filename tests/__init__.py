"""Tests; a package, so that tests can share what they know about the tree."""

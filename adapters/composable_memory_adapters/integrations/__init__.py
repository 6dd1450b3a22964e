"""Memories in the forms that agent frameworks know: one module for each framework, an extra each."""

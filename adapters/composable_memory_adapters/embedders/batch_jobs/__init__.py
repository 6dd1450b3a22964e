"""Batch jobs: thousands of texts are submitted to a provider at once, and the vectors fetched later."""

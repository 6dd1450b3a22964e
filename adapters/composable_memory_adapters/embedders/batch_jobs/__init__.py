"""Batch jobs: thousands of texts are left with a provider at once, and the vectors fetched later."""

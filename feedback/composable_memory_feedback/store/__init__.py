"""The feedback store: judgements, evaluations, weights and experiments in one SQLite file."""

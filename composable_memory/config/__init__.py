"""Settings: the model, the layers they come from, their origins, and what a workspace may set."""

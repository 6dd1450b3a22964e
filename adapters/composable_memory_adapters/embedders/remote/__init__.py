"""What all providers over HTTP share: requests, retries, refusals, and texts within limits."""

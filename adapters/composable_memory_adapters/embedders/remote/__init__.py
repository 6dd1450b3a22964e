"""What all providers over HTTP share: client, retries, errors, batches."""

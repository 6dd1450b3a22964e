"""What all HTTP providers share: client, retries, errors, batching."""

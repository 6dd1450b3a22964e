"""Vector engines: exact products, sign bits with rescoring, and sqlite-vec."""

__all__: list[str] = []

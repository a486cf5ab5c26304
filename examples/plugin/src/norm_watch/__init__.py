"""Watch sglang's norms."""

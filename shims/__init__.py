"""Panel shims: what every shim program shares, and one folder of knowledge per agent."""

"""Everything that is known about Grok Build. Its panels are not intercepted yet: the shim hands over to the real binary."""

"""Fuzzing of what looks at bytes that others wrote: the stream trackers, the line splitter, the sieve, the pump."""

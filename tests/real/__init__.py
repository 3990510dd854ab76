"""Tests with real agent binaries and real editor-side clients, offline, against scripted model servers."""

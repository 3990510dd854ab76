"""Tests with real processes, and scripted children in the place of agents."""

"""Tests of single modules, without processes."""

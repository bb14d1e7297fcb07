"""Experiments that no paper has."""

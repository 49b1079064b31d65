"""Objectives of all tasks: a model together with its loss."""

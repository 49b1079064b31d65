"""Losses of every task: a model together with what it is trained on."""

"""Augmentation of a corpus: changed copies of its pairs, which harden a model against the noise of ordinary texts."""

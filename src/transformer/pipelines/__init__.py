"""Pipelines: models with their tokenizers, ready to translate, generate, classify and embed."""

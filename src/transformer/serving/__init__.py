"""The HTTP server of `transformer serve`: interfaces of LibreTranslate, DeepL and OpenAI in front of worker processes.

The process that answers requests (`app`, `routes`) holds no model and does not import torch. Models are loaded by
processes of `engine`, which translate batches of texts of all clients.
"""

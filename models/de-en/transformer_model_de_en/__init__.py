"""German to English: the model that `transformer translate de-en` uses."""

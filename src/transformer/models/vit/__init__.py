"""ViT: an encoder that reads an image as patches."""

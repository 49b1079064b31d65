"""Reading and writing model folders in the Hugging Face format."""

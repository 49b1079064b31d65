"""Checks of all ranks before a long job: clocks, versions, the shared folder, communication and a training step."""

"""The servers behind the dispatcher: how batches are sent to them, and whether they answer."""

"""Files: read without waiting for anybody, checked, and written so that they are complete or unchanged."""

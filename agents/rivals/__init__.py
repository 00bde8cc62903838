"""What RRL is compared with: other learners, searches, and the oracle."""

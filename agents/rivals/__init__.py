"""What RRL is compared with: other learners, searches, and the oracle; one file each.

``search`` and ``walker`` are the bases of searches and of learners with a network.
"""

"""Partition: which sub-cluster loads which models, balanced and with little disruption (Symphony, A)."""

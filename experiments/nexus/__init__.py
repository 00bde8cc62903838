"""Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis (SOSP 2019). One file per figure."""

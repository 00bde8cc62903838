"""Tests of servetune; the folders mirror the package."""

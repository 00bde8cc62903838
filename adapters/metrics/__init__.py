"""What servers count: their metrics pages, histograms, and totals that never fall."""

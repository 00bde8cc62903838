"""RRL: Swift Machine Learning Model Serving Scheduling (SC'19). One file per figure."""

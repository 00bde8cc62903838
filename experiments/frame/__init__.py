"""What all experiments share: how one is declared, found, run, stored and compared."""

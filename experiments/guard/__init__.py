"""What each rule and limit of the guard is worth, and how well it does with short windows."""

"""What our web servers share: how connections end, who may ask, and what is logged of strangers."""

"""Entry points; this file keeps another installed package called src from shadowing them."""

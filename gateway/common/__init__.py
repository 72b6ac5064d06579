"""What every package may use: clocks, files, text, units, errors. Knows no configuration."""

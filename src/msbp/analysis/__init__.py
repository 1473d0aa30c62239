"""From records to tables and statistics; imports no torch."""

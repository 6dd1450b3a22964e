"""Two weight tables interleaved in live traffic, credited by use, stopped as soon as the data allow."""

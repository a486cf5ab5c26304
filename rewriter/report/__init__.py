"""The only formatter: values in, text, JSON and other formats out."""

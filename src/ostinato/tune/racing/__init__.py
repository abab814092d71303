"""Who is cut, who is measured again, and who wins: values in, values out."""

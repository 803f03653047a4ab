"""`midtoken playground`: a local page with an editor, and a picture of healing at its cursor."""
